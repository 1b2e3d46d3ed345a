"""The library as Python sees it: structures as C lays them out, and life without it."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sightline.native import library as c
from sightline.native.build import ANYWHERE, FLAGS, FOLDER, compiler, flags_of, possible
from sightline.native.network import ACTIVATIONS
from sightline.native.settings import ENDINGS

OTHER_NAMES = {"PackedShape": "Packing"}  # of structures in C
SCRIPT = """
import json
import torch
from sightline.config import DecodeConfig, ModelConfig
from sightline.decode.engine import decode_tokens
from sightline.families.sightline import build_model
from sightline.network.prepared import prepare_for_inference

torch.set_num_threads(1)
torch.manual_seed(0)
model = build_model(ModelConfig(vocab_size=40, d_model=16, d_ff=32, n_heads=2, n_encoder_layers=1, n_decoder_layers=2))
with torch.no_grad():
    model.output.weight.mul_(3)
prepared = prepare_for_inference(model)
found = decode_tokens(prepared, [[5, 6, 7], [8], [30, 9, 9, 31]], DecodeConfig(max_length_extra=8))
print(json.dumps([type(prepared).__name__, [[h.tokens for h in ranked] for ranked in found]]))
"""


def structures() -> list[type[ctypes.Structure]]:
    kinds = [kind for kind in vars(c).values() if isinstance(kind, type) and issubclass(kind, ctypes.Structure)]
    return [kind for kind in kinds if kind is not ctypes.Structure]


def layout(structure: type[ctypes.Structure]) -> str:
    """What Python believes, for a C compiler to judge."""
    name = OTHER_NAMES.get(structure.__name__, structure.__name__)
    claims = [f"sizeof({name}) == {ctypes.sizeof(structure)}"]
    for field in structure._fields_:
        inner, at = field[0].rstrip("_"), getattr(structure, field[0])
        claims.append(f"offsetof({name}, {inner}) == {at.offset}")
        claims.append(f"sizeof((({name} *)0)->{inner}) == {at.size}")
    return "\n".join(f'_Static_assert({claim}, "{claim}");' for claim in claims)


def judge(claims: str, folder: Path) -> str:
    """What a C compiler finds wrong."""
    (folder / "claims.c").write_text(f'#include "search.c"\n#include <stddef.h>\n{claims}\n')
    flags = [flag for flag in flags_of("search.c") if flag != "-O3"]
    call = [*(compiler() or []), *flags, "-fsyntax-only", f"-I{FOLDER}", str(folder / "claims.c")]
    return subprocess.run(call, capture_output=True, text=True).stderr


@pytest.mark.skipif(not possible() or compiler() is None, reason="no C compiler for this kind of machine")
def test_structures_are_as_c_lays_them_out(tmp_path: Path) -> None:
    assert len(structures()) >= 9
    assert judge("\n".join(map(layout, structures())), tmp_path) == ""
    wrong = type("Norm", (ctypes.Structure,), {"_fields_": [("weight", ctypes.c_void_p), ("eps", ctypes.c_float)]})
    assert "sizeof(Norm) == 16" in judge(layout(wrong), tmp_path)


@pytest.mark.parametrize(("kind", "names"), [("Activation", ACTIVATIONS), ("Ending", ENDINGS)])
def test_c_and_python_count_kinds_alike(kind: str, names: tuple[str, ...]) -> None:
    found = re.search(rf"enum {kind} {{ (.*) }}", "".join(p.read_text() for p in FOLDER.glob("*.[ch]")))
    assert found and tuple(found[1].lower().split(", ")) == names


@pytest.mark.skipif(c.library() is None, reason="the compiled library is not here")
def test_without_the_library_the_text_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Switched off by the environment, so in a program of its own."""
    switched_off = {**os.environ, c.SWITCH: "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=switched_off, capture_output=True, text=True, check=True)
    exec(SCRIPT, {})
    (off, without), (on, found) = json.loads(done.stdout), json.loads(capsys.readouterr().out)
    assert (off, on) == ("InferenceTransformer", "NativeTransformer")
    assert without == found and found != [[[]]] * 3


def test_where_there_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not built, or built for another kind of machine: then there is none, and no error."""
    monkeypatch.delenv(c.SWITCH, raising=False)
    load = c.library.__wrapped__  # without what is remembered
    monkeypatch.setattr(c, "LIBRARY", tmp_path / "_library.so")
    assert load() is None
    (tmp_path / "_library.so").write_text("of another system")
    assert load() is None


CPUID = """
#include <cpuid.h>
/* Every bit set but those of one of the two leaves. */
static int answer(unsigned leaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    *a = *b = *c = *d = leaf == WITHOUT_LEAF ? ~WITHOUT_BITS : ~0u;
    return 1;
}
#define __get_cpuid answer
#define __get_cpuid_count(leaf, part, a, b, c, d) answer(leaf, a, b, c, d)
"""


@pytest.mark.skipif(not possible() or compiler() is None, reason="no C compiler for this kind of machine")
@pytest.mark.parametrize(
    ("leaf", "bits", "runs"),
    [(9, 0, True), (7, 1 << 5, False), (1, 1 << 12, False), (1, 1 << 27, False), (1, 1 << 28, False)],
    ids=["all", "AVX2", "FMA", "OSXSAVE", "AVX"],
)
@pytest.mark.skipif(c.library() is None, reason="this processor lacks the instructions")
def test_the_processor_itself_is_asked(
    leaf: int, bits: int, runs: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not what the system says of it: an emulator and a chroot know better."""
    (tmp_path / "cpuid_answers.h").write_text(CPUID)
    answers = [f"-DWITHOUT_LEAF={leaf}", f"-DWITHOUT_BITS={bits}u", "-include", str(tmp_path / "cpuid_answers.h")]
    made = tmp_path / "_library.so"
    call = [*(compiler() or []), *FLAGS, *answers, "-shared", str(FOLDER / ANYWHERE), "-o", str(made)]
    subprocess.run(call, check=True)
    monkeypatch.setattr(c, "LIBRARY", made)
    if runs:  # there is nothing else in it
        with pytest.raises(AttributeError, match="sightline_version"):
            c.library.__wrapped__()
    else:
        assert c.library.__wrapped__() is None


@pytest.mark.skipif(not possible() or compiler() is None, reason="no C compiler for this kind of machine")
def test_who_asks_the_processor_needs_none_of_its_instructions(tmp_path: Path) -> None:
    """No register of theirs, nor any instruction in their encoding."""

    def assembled(name: str) -> str:
        call = [*(compiler() or []), *flags_of(name), "-S", str(FOLDER / name), "-o", str(tmp_path / "out.s")]
        subprocess.run(call, check=True)
        return (tmp_path / "out.s").read_text()

    vector = re.compile(r"%[xyz]mm|^\s+v[a-z0-9]+\s", re.MULTILINE)
    assert vector.search(assembled("attention.c")) and not vector.search(assembled(ANYWHERE))
