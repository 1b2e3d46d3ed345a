"""One source, several sets of instructions: the same bits from each, in every product and in whole searches."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sanitize.run import NARROW

from sightline.config import DecodeConfig
from sightline.decode.engine import decode_tokens
from sightline.native import build as original
from sightline.native import library as c
from sightline.native.network import NUMBERS, CompiledNetwork, Linear
from sightline.network.prepared import prepare_for_inference
from sightline.network.transformer import Transformer

DRIVER = Path(__file__).with_name("kernels.c")
AARCH64 = ("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
needs_library = pytest.mark.skipif(not c.usable_builds(), reason="the compiled library is not here")


def driver(compiler: list[str], folder: Path) -> Path:
    """The program that hashes what a build yields."""
    made = folder / "kernels"
    flags = ["-std=gnu11", "-O1", "-DSCALAR", "-w", f"-I{original.FOLDER}", str(DRIVER), "-o", str(made), "-ldl", "-lm"]
    subprocess.run([*compiler, *flags], check=True)
    return made


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The hashes of a build for this machine."""
    made = driver(original.compiler() or [], tmp_path_factory.mktemp("driver"))

    @cache
    def hashes(name: str) -> str:
        call = [str(made), str(original.library_of(name))]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout

    return hashes


@needs_library
@pytest.mark.skipif(original.compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("build", c.usable_builds())
def test_every_kernel_yields_the_bits_of_plain_c(build: str, kernels: Callable[[str], str]) -> None:
    """Products, activations, attention and its gradients, dropout, softmax, searches; in all numbers."""
    lines = kernels(build).splitlines()
    assert len(lines) > 200 and len(set(lines)) > 150
    assert lines == kernels(original.ANYWHERE).splitlines()


@needs_library
@pytest.mark.parametrize("compute", NUMBERS)
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("sizes", [(64, 24), (20, 33)], ids=["of whole registers", "of any size"])
def test_a_search_finds_the_same_to_the_last_bit(
    build: Callable[..., Transformer],
    sentences: Any,
    sizes: tuple[int, int],
    beam_size: int,
    compute: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever searches, in whatever company."""
    d_model, d_ff = sizes
    model = build(2.0, vocab_size=203, tied_embeddings="none", d_model=d_model, d_ff=d_ff, n_heads=4)
    sources = sentences(7, 1, 12, 5, 30, 3, vocab=203)
    config = DecodeConfig(beam_size=beam_size, n_best=beam_size, compute=compute)
    found = {}
    for name in c.usable_builds():
        monkeypatch.setattr(c, "library", lambda name=name: c.opened(name))
        prepared = prepare_for_inference(model, compute)
        assert isinstance(prepared, CompiledNetwork)
        found[name] = decode_tokens(prepared, sources, config)
        alone = [decode_tokens(prepared, [source], config)[0] for source in sources]
        assert records(alone) == records(found[name])
    assert len({str(records(each)) for each in found.values()}) == 1


@pytest.mark.skipif("avx512" not in c.usable_builds() or original.compiler() is None, reason="needs avx512")
def test_avx_vnni_yields_the_same_bits(
    tmp_path: Path, kernels: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled into AVX-512's encoding of the same instruction, for few processors have both."""
    monkeypatch.setitem(original.BUILDS["x86_64"], "narrow", NARROW)
    library = tmp_path / "narrow.so"
    subprocess.run([*(original.compiler() or []), *original.call_of("narrow", library), "-O1"], check=True)
    assert b"vpdpbusd" in disassembled(library)
    made = driver(original.compiler() or [], tmp_path)
    found = subprocess.run([made, library], capture_output=True, text=True, check=True).stdout
    assert found == kernels(original.ANYWHERE)


def disassembled(library: Path) -> bytes:
    if not shutil.which("objdump"):
        pytest.skip("needs objdump")
    return subprocess.run(["objdump", "-d", library], capture_output=True, check=True).stdout


def records(found: Any) -> list[Any]:
    return [[(h.tokens, h.token_log_probs, h.log_prob, h.score) for h in ranked] for ranked in found]


@needs_library
@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_row_is_the_same_in_any_company(instructions: str, numbers: str) -> None:
    """Tiles have other heights and widths in each build."""
    draw = np.random.default_rng(0)
    weight, bias = (draw.standard_normal(shape).astype(np.float32) for shape in ((163, 100), 163))
    layer = Linear(weight, bias, numbers)
    x = draw.standard_normal((55, 100)).astype(np.float32)
    alone = np.concatenate([layer(row) for row in x[:, None]])
    for rows in range(1, 56):
        np.testing.assert_array_equal(layer(x[:rows]), alone[:rows])


@needs_library
def test_what_is_no_number_stays_so(instructions: str) -> None:
    x = torch.randn(4, 40)
    x[1, 3], x[2, 4], x[3, :] = torch.nan, -torch.inf, 1e-40
    for numbers in NUMBERS:
        y = Linear(torch.randn(24, 40).numpy(), None, numbers)(x.numpy())
        assert np.isfinite(y).all(1).tolist() == [True, False, False, True]


@pytest.mark.skipif(not all(map(shutil.which, AARCH64)), reason=f"needs {' and '.join(AARCH64)}")
@pytest.mark.skipif(original.compiler() is None or not c.usable_builds(), reason="nothing to compare with")
def test_aarch64_yields_the_same_bits(
    tmp_path: Path, kernels: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled for it and run by an emulator."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    builds = original.builds()
    made = driver([AARCH64[0]], tmp_path)
    assert {"neon", "dotprod"} < builds.keys()
    for name in builds:
        subprocess.run([AARCH64[0], *original.call_of(name, tmp_path / name)], check=True)
        call = [AARCH64[1], "-L", "/usr/aarch64-linux-gnu", str(made), str(tmp_path / name)]
        found = subprocess.run(call, capture_output=True, text=True)
        assert (found.stderr, found.stdout) == ("", kernels(original.ANYWHERE)), name


@pytest.mark.skipif("avx2" not in c.usable_builds(), reason="needs avx2")
def test_a_program_is_told_which_build_to_use() -> None:
    """From its start: nothing is loaded that was not asked for."""
    code = "from sightline.native import library as c; print(c.instructions(), c.library()._name)"
    environment = {**os.environ, c.SWITCH: "avx2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["avx2", str(original.library_of("avx2"))]
