"""Bindings of the library, and behaviour without it."""

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwise.config.model import TransformerConfig
from headwise.config.settings import EARLY_STOPPING
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.runtime.native import library as c
from headwise.runtime.native.build import ANYWHERE, ASKS, FLAGS, FOLDER, SOURCES, UNTRIED, builds, compiler, library_of
from headwise.runtime.native.network import ACTIVATIONS

BEST = next((name for name in c.usable_builds() if name not in (UNTRIED, ANYWHERE)), "")
SCRIPT = """
import json
import torch
from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.runtime.search.engine import decode_tokens
from headwise.pytorch.search.stepwise import engine_of
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference

torch.set_num_threads(1)
torch.manual_seed(0)
shape = TransformerConfig(vocab_size=40, d_model=16, d_ff=32, n_heads=2, n_encoder_layers=1, n_decoder_layers=2)
model = build_model(shape)
with torch.no_grad():
    model.output.weight.mul_(3)
prepared = prepare_for_inference(model)
found = decode_tokens(engine_of(prepared), [[5, 6, 7], [8], [30, 9, 9, 31]], SearchSettings(max_length_extra=8))
print(json.dumps([type(prepared).__name__, [[h.tokens for h in ranked] for ranked in found]]))
"""


def structures() -> list[type[ctypes.Structure]]:
    kinds = [kind for kind in vars(c).values() if isinstance(kind, type) and issubclass(kind, ctypes.Structure)]
    return [kind for kind in kinds if kind is not ctypes.Structure]


def layout(structure: type[ctypes.Structure]) -> str:
    """C assertions about a Python structure."""
    name = structure.__name__
    claims = [f"sizeof({name}) == {ctypes.sizeof(structure)}"]
    for field in structure._fields_:
        inner, at = field[0].rstrip("_"), getattr(structure, field[0])
        claims.append(f"offsetof({name}, {inner}) == {at.offset}")
        claims.append(f"sizeof((({name} *)0)->{inner}) == {at.size}")
    return "\n".join(f'_Static_assert({claim}, "{claim}");' for claim in claims)


def judge(claims: str, folder: Path) -> str:
    """The errors of a C compiler."""
    (folder / "claims.c").write_text(f'#include "search.c"\n#include "reading.h"\n#include <stddef.h>\n{claims}\n')
    flags = [flag for flag in (*FLAGS, *builds()[ANYWHERE]) if flag != "-O3"]
    call = [*(compiler() or []), *flags, "-fsyntax-only", f"-I{FOLDER}", str(folder / "claims.c")]
    return subprocess.run(call, capture_output=True, text=True).stderr


@pytest.mark.skipif(not builds() or compiler() is None, reason="no C compiler for this kind of machine")
def test_structures_match_those_of_c(tmp_path: Path) -> None:
    assert len(structures()) >= 9
    assert judge("\n".join(map(layout, structures())), tmp_path) == ""
    wrong = type("Norm", (ctypes.Structure,), {"_fields_": [("weight", ctypes.c_void_p), ("eps", ctypes.c_float)]})
    assert "sizeof(Norm) == 16" in judge(layout(wrong), tmp_path)


@pytest.mark.parametrize(("kind", "names"), [("Activation", ACTIVATIONS), ("EarlyStopping", EARLY_STOPPING)])
def test_enums_match_those_of_c(kind: str, names: tuple[str, ...]) -> None:
    found = re.search(rf"enum {kind} {{ (.*) }}", "".join(p.read_text() for p in FOLDER.glob("*.[ch]")))
    assert found and tuple(found[1].lower().replace("stop_", "").split(", ")) == names


@pytest.mark.thorough
@pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")
def test_without_the_library_the_text_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Disabled by the environment, in a separate program."""
    switched_off = {**os.environ, c.SWITCH: "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=switched_off, capture_output=True, text=True, check=True)
    exec(SCRIPT, {})
    (off, without), (on, found) = json.loads(done.stdout), json.loads(capsys.readouterr().out)
    assert (off, on) == ("Transformer", "CompiledNetwork")
    assert without == found and found != [[[]]] * 3


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clears caches."""
    for name in ("opened", "instructions", "library"):
        monkeypatch.setattr(c, name, getattr(c, name).__wrapped__)


def test_missing_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not built, or built for another machine: no error unless a build was requested."""
    monkeypatch.delenv(c.SWITCH, raising=False)
    monkeypatch.setattr(c, "library_of", lambda name: tmp_path / name)
    fresh(monkeypatch)
    with pytest.warns(UserWarning, match=r"is missing; torch is used instead, more slowly: .*build\.py"):
        assert c.library() is None
    for name in builds():
        (tmp_path / name).write_text("of another system")
    assert c.library() is None and c.usable_builds() == []
    monkeypatch.setenv(c.SWITCH, ANYWHERE)
    if builds():
        with pytest.raises(UserError, match=rf"HEADWISE_NATIVE = {ANYWHERE}: it is not built: python .*build\.py"):
            c.library()


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """An installation with some of the builds."""

    def install(*names: str) -> None:
        for name in names:
            shutil.copy(library_of(name), tmp_path / name)
        monkeypatch.delenv(c.SWITCH, raising=False)
        monkeypatch.setattr(c, "library_of", lambda name: tmp_path / name)
        fresh(monkeypatch)

    return install


@pytest.mark.skipif(BEST == "", reason="this processor runs no other build than plain C")
def test_only_plain_c_on_a_better_processor(only: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning; the error for int8 does not blame the processor."""
    only(ANYWHERE)
    with pytest.warns(
        UserWarning, match=rf"is not built for this processor \({BEST}\); torch .* more slowly: .*build\.py"
    ):
        assert c.instructions() == "" and c.usable_builds() == [ANYWHERE]
    model = build_model(TransformerConfig(vocab_size=40, d_model=16, d_ff=32, n_heads=2))
    monkeypatch.setattr(
        "headwise.pytorch.search.inference.native_available", lambda _: False
    )  # it remembers the library
    with pytest.raises(UserError, match=rf"not built for this processor \({BEST}\): .*build"):
        prepare_for_inference(model, "int8")


@pytest.mark.skipif(BEST == "", reason="this processor runs no other build than plain C")
def test_no_warning_about_a_build_that_runs(only: Callable[..., None]) -> None:
    """Even if another may be faster, or plain C was requested."""
    only(ANYWHERE, BEST)
    assert c.instructions() == BEST and c.unbuilt() == ""


@pytest.mark.skipif(not c.usable_builds(), reason="the compiled library is missing")
def test_reasons_for_a_missing_library(
    only: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not built, built from other sources, disabled, unknown processor, or one that runs only plain C."""
    only()
    assert re.match(r"is missing: to build it, run .*build\.py", c.absence())
    only(ANYWHERE)
    monkeypatch.setattr(c, "runnable_builds", lambda: [ANYWHERE])
    assert "AVX2" in c.absence()
    monkeypatch.setattr(c, "version", lambda: 0)
    with pytest.warns(UserWarning, match="built from other sources"):
        assert c.absence().startswith("does not fit this installation: ")
    monkeypatch.setattr(c, "builds", dict)
    monkeypatch.setattr(c, "runnable_builds", list)
    assert platform.machine() in c.absence()
    monkeypatch.setenv(c.SWITCH, "0")
    assert c.absence() == "is disabled by HEADWISE_NATIVE = 0"


@pytest.mark.skipif(not c.usable_builds(), reason="the compiled library is missing")
def test_selecting_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment; by default the best build for the processor, but torch rather than plain C."""
    fresh(monkeypatch)
    usable = c.usable_builds()
    for name in usable:
        monkeypatch.setenv(c.SWITCH, name)
        assert c.instructions() == name and c.library() is not None
    for switch, chosen in (("0", ""), ("", next((name for name in usable if name not in (UNTRIED, ANYWHERE)), ""))):
        monkeypatch.setenv(c.SWITCH, switch)
        assert c.instructions() == chosen
    monkeypatch.setattr(c, "usable_builds", lambda: [UNTRIED, ANYWHERE])
    monkeypatch.setattr(c, "runnable_builds", c.usable_builds)
    assert c.instructions() == ""
    if UNTRIED in builds():
        monkeypatch.setenv(c.SWITCH, UNTRIED)
        assert c.instructions() == UNTRIED
    monkeypatch.setattr(c, "usable_builds", lambda: [ANYWHERE])
    monkeypatch.setenv(c.SWITCH, usable[0])
    if usable[0] != ANYWHERE:
        with pytest.raises(UserError, match=f"^HEADWISE_NATIVE = {usable[0]}: .* does not support it$"):
            c.instructions()
    monkeypatch.setenv(c.SWITCH, "avx3")
    with pytest.raises(UserError, match=r"^HEADWISE_NATIVE = avx3: unknown build; choose one of .*scalar, 0, or "):
        c.instructions()


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


x86_64 = pytest.mark.skipif(platform.machine() != "x86_64" or compiler() is None, reason="no C compiler, or no x86-64")


@x86_64
@pytest.mark.skipif("avx512" not in c.usable_builds(), reason="the system keeps fewer registers")
@pytest.mark.parametrize(
    ("leaf", "bits", "runs"),
    [
        (9, 0, ["avx512", "avxvnni", "avx2", "scalar"]),
        *((7, bit, ["avxvnni", "avx2", "scalar"]) for bit in (1 << 16, 1 << 17, 1 << 30, 1 << 31, 1 << 11)),
        (7, 1 << 4, ["avx512", "avx2", "scalar"]),
        *((7, 1 << 5, ["scalar"]), (1, 1 << 12, ["scalar"]), (1, 1 << 27, ["scalar"]), (1, 1 << 28, ["scalar"])),
    ],
    ids=["all", "F", "DQ", "BW", "VL", "VNNI", "AVX-VNNI", "AVX2", "FMA", "OSXSAVE", "AVX"],
)
def test_processor_detection(leaf: int, bits: int, runs: list[str], tmp_path: Path) -> None:
    """By CPUID, not by the operating system's description."""
    assert [name for name in answers(tmp_path, CPUID, leaf, bits) if name != UNTRIED] == runs


def answers(folder: Path, stand_in: str, leaf: int, bits: int) -> list[str]:
    """The builds that run on such a processor."""
    (folder / "stand_in.h").write_text(stand_in)
    lacks = [f"-DWITHOUT_LEAF={leaf}", f"-DWITHOUT_BITS={bits}u", "-include", str(folder / "stand_in.h")]
    made = folder / "asked.so"
    call = [*(compiler() or []), *FLAGS, *lacks, "-shared", str(FOLDER / ASKS), "-o", str(made)]
    subprocess.run(call, check=True)
    asked = ctypes.CDLL(str(made))
    return [name for name in (*builds(), "neon", "") if asked.headwise_runs_here(name.encode())]


TILES = f"""{CPUID}
#include <sys/syscall.h>
#include <unistd.h>
#define saved_registers() SAVED
#define syscall(number, code, feature) \\
    (number == SYS_arch_prctl && code == 0x1023 && feature == 18 && GRANTED ? 0 : -1)
"""


@x86_64
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
@pytest.mark.parametrize(
    ("bits", "saved", "granted", "runs"),
    [
        *(
            (0, 0x600E6, 1, True),
            (1 << 24, 0x600E6, 1, False),
            (1 << 25, 0x600E6, 1, False),
            (1 << 11, 0x600E6, 1, False),
        ),
        *((0, 0x200E6, 1, False), (0, 0x400E6, 1, False), (0, 0x60006, 1, False), (0, 0x600E6, 0, False)),
    ],
    ids=["all", "TILE", "INT8", "VNNI", "XTILEDATA", "XTILECFG", "ZMM", "refused"],
)
def test_amx_detection(bits: int, saved: int, granted: int, runs: bool, tmp_path: Path) -> None:
    """If processor and system support tiles, and the process may use them."""
    stand_in = f"#define SAVED {saved}\n#define GRANTED {granted}\n{TILES}"
    assert (UNTRIED in answers(tmp_path, stand_in, 7, bits)) == runs


@pytest.mark.compiles
@x86_64
def test_the_generic_build_uses_no_special_instructions(tmp_path: Path) -> None:
    """Neither their registers nor their encodings."""

    def assembled(name: str, build: str) -> str:
        flags = [*FLAGS, *builds()[build], "-DHEADWISE_VERSION=0", "-S"]
        call = [*(compiler() or []), *flags, str(FOLDER / name), "-o", str(tmp_path / "out.s")]
        subprocess.run(call, check=True)
        return (tmp_path / "out.s").read_text()

    vector = re.compile(r"%[yz]mm|^\s+v[a-z0-9]+\s", re.MULTILINE)
    assert vector.search(assembled("attention.c", "avx2"))
    assert not [name for name in (*SOURCES, ASKS) if vector.search(assembled(name, ANYWHERE))]


@pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")
def test_a_library_with_other_structures_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are compared when it is loaded: other fields would corrupt memory."""
    assert all(c.size_in_c(c.needed(), kind) == ctypes.sizeof(kind) for kind in structures())
    assert c.size_in_c(c.needed(), type("Nothing", (ctypes.Structure,), {})) == 0
    monkeypatch.setattr(c, "size_in_c", lambda loaded, kind: ctypes.sizeof(kind) + 4 * (kind is c.Layer))
    with pytest.warns(UserWarning, match="sizes of Layer and is not used"):
        assert c.opened.__wrapped__(c.instructions()) is None
