"""All builds give the same bits, in every kernel and in whole searches."""

import ctypes
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
from sanitize.run import EMULATED, NARROW

from headwise.config.settings import SearchSettings
from headwise.core.transformer import Transformer
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native import build as original
from headwise.runtime.native import library as c
from headwise.runtime.native.linear import NUMBERS, Linear
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.engine import decode_tokens

DRIVER = Path(__file__).with_name("kernels.c")
AMX = original.BUILDS["x86_64"][original.UNTRIED]
AARCH64 = ("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
needs_library = pytest.mark.skipif(not c.usable_builds(), reason="the compiled library is missing")
in_use = pytest.mark.skipif(c.library() is None, reason=f"the compiled library {c.absence()}")


def driver(compiler: list[str], folder: Path) -> Path:
    """The program that hashes the results of a build."""
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


@pytest.mark.compiles
@needs_library
@pytest.mark.skipif(original.compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("build", c.usable_builds())
def test_every_kernel_equals_plain_c(build: str, kernels: Callable[[str], str]) -> None:
    """Products, activations, attention and its gradients, dropout, softmax, searches; in all numbers."""
    lines = kernels(build).splitlines()
    assert len(lines) > 200 and len(set(lines)) > 150
    assert lines == kernels(original.ANYWHERE).splitlines()


@pytest.mark.few(4)
@in_use
@pytest.mark.parametrize("compute", NUMBERS)
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("sizes", [(64, 24), (20, 33)], ids=["of whole registers", "of any size"])
def test_searches_are_bit_identical(
    build: Callable[..., Transformer],
    sentences: Any,
    sizes: tuple[int, int],
    beam_size: int,
    compute: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For all kinds of searches and batches."""
    d_model, d_ff = sizes
    model = build(2.0, vocab_size=203, tied_embeddings="none", d_model=d_model, d_ff=d_ff, n_heads=4)
    sources = sentences(7, 1, 12, 5, 30, 3, vocab=203)
    config = SearchSettings(beam_size=beam_size, n_best=beam_size, compute=compute)
    found = {}
    for name in c.usable_builds():
        monkeypatch.setattr(c, "library", lambda name=name: c.opened(name))
        prepared = prepare_for_inference(model, compute)
        assert isinstance(prepared, CompiledNetwork)
        found[name] = decode_tokens(engine_of(prepared), sources, config)
        alone = [decode_tokens(engine_of(prepared), [source], config)[0] for source in sources]
        assert records(alone) == records(found[name])
    assert len({str(records(each)) for each in found.values()}) == 1


@pytest.mark.compiles
@pytest.mark.skipif("avx512" not in c.usable_builds() or original.compiler() is None, reason="needs avx512")
def test_avx_vnni_is_bit_identical(
    tmp_path: Path, kernels: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled to AVX-512's encoding of the same instruction, since few processors have both."""
    monkeypatch.setitem(original.BUILDS["x86_64"], "narrow", NARROW)
    library = tmp_path / "narrow.so"
    subprocess.run([*(original.compiler() or []), *original.call_of("narrow", library), "-O1"], check=True)
    assert b"vpdpbusd" in disassembled(library)
    made = driver(original.compiler() or [], tmp_path)
    found = subprocess.run([made, library], capture_output=True, text=True, check=True).stdout
    assert found == kernels(original.ANYWHERE)


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build for AMX, with instructions emulated in C, which check their use."""
    if "avx512" not in c.usable_builds() or not original.supports(original.compiler() or ["false"], AMX):
        pytest.skip("needs avx512, and a compiler that has heard of AMX")
    made = tmp_path_factory.mktemp("tiles") / "amx.so"
    call = [*(original.compiler() or []), *original.call_of(original.UNTRIED, made), "-O1", *EMULATED]
    subprocess.run(call, check=True)
    assert b"tdpbusd" not in disassembled(made)
    return made


@pytest.mark.compiles
def test_amx_is_bit_identical(tiles: Path, kernels: Callable[[str], str], tmp_path: Path) -> None:
    """For everything in the hash program, including searches in threads."""
    made = driver(original.compiler() or [], tmp_path)
    ran = subprocess.run([made, tiles], capture_output=True, text=True)
    assert (ran.stderr, ran.stdout) == ("", kernels(original.ANYWHERE))


@pytest.mark.compiles
@in_use
@pytest.mark.parametrize("after_relu", [False, True])
@pytest.mark.parametrize("d_in", [1, 16, 32, 48, 64, 65, 81, 100, 128, 200])
@pytest.mark.parametrize("d_out", [1, 16, 70])
def test_tiles_of_any_shape(
    d_out: int, d_in: int, after_relu: bool, tiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels, rows and inputs that do not fill a tile; and few rows, which use none."""
    draw = np.random.default_rng(d_out * d_in)
    weight, bias = (draw.standard_normal(shape).astype(np.float32) for shape in ((d_out, d_in), d_out))
    x = draw.standard_normal((100, d_in)).astype(np.float32).clip(0 if after_relu else -9)
    wanted = Linear(weight, bias, "int8", after_relu)(x)
    loaded = c.declared(ctypes.CDLL(str(tiles)))
    monkeypatch.setattr(c, "library", lambda: loaded)
    layer, made = Linear(weight, bias, "int8", after_relu), ctypes.c_int64.in_dll(loaded, "tile_products")
    for rows in (1, 6, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 55, 64, 100):
        made.value = 0
        np.testing.assert_array_equal(layer(x[:rows]), wanted[:rows])
        assert made.value == whole_tiles(rows) * -(-d_out // 16) * -(-layer_depth(d_in) // 64)


def whole_tiles(rows: int) -> int:
    """Tiles of 16 rows, in blocks of 48 with at least 7 rows."""
    return sum(-(-min(48, rows - first) // 16) for first in range(0, rows, 48) if rows - first > 6)


def layer_depth(d_in: int) -> int:
    return -(-d_in // 16) * 16


@pytest.mark.compiles
def test_amx_is_compiled_to_its_instructions() -> None:
    library = original.library_of(original.UNTRIED)
    if not library.is_file():
        pytest.skip("the compiler has not heard of AMX")
    found = disassembled(library)
    assert all(name in found for name in (b"ldtilecfg", b"tileloadd", b"tdpbusd", b"tilestored", b"tilerelease"))


def disassembled(library: Path) -> bytes:
    if not shutil.which("objdump"):
        pytest.skip("needs objdump")
    return subprocess.run(["objdump", "-d", library], capture_output=True, check=True).stdout


def records(found: Any) -> list[Any]:
    return [[(h.tokens, h.token_log_probs, h.log_prob, h.score) for h in ranked] for ranked in found]


@needs_library
@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_row_does_not_depend_on_other_rows(instructions: str, numbers: str) -> None:
    """Tiles have different shapes in each build."""
    draw = np.random.default_rng(0)
    weight, bias = (draw.standard_normal(shape).astype(np.float32) for shape in ((163, 100), 163))
    layer = Linear(weight, bias, numbers)
    x = draw.standard_normal((55, 100)).astype(np.float32)
    alone = np.concatenate([layer(row) for row in x[:, None]])
    for rows in range(1, 56):
        np.testing.assert_array_equal(layer(x[:rows]), alone[:rows])


@needs_library
def test_nan_stays_nan(instructions: str) -> None:
    x = torch.randn(4, 40)
    x[1, 3], x[2, 4], x[3, :] = torch.nan, -torch.inf, 1e-40
    for numbers in NUMBERS:
        y = Linear(torch.randn(24, 40).numpy(), None, numbers)(x.numpy())
        assert np.isfinite(y).all(1).tolist() == [True, False, False, True]


UNDEFINED = """
#include <stdio.h>
#include "attention.c"
int main(void) {
    float x[41];
    for (int at = 0; at < 41; at++) /* what is no number before, behind and in the lane of the largest */
        for (int i = 0; i < 41; i++) {
            for (int j = 0; j < 41; j++) x[j] = (float)j;
            x[at] = NAN, x[i] = at == i ? NAN : 1e30f;
            if (at != i && maximum(x, 41) != 1e30f) return printf("%d hides %d", at, i), 1;
            if (!isnan(exponentials(x, 41, maximum(x, 41)))) return printf("%d is lost", at), 1;
        }
    return 0;
}
"""


@pytest.mark.compiles
@pytest.mark.skipif(original.compiler() is None, reason="no C compiler")
def test_nan_does_not_hide_numbers(tmp_path: Path) -> None:
    """Otherwise exponentials would overflow, differently in each build."""
    source, program = tmp_path / "undefined.c", tmp_path / "undefined"
    source.write_text(UNDEFINED)
    strict = ["-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    call = [*(original.compiler() or []), "-std=gnu11", "-DSCALAR", "-O1", "-ffp-contract=off", "-w", *strict]
    call += [
        f"-I{original.FOLDER}",
        str(source),
        str(original.FOLDER / "parallel.c"),
        str(original.FOLDER / "pool.c"),
        "-o",
        str(program),
        "-lm",
        "-pthread",
    ]
    if subprocess.run(call).returncode:
        pytest.skip("the compiler has no sanitizer of undefined behaviour")
    ran = subprocess.run([program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.distributed  # the emulator takes 100 seconds
@pytest.mark.skipif(not all(map(shutil.which, AARCH64)), reason=f"needs {' and '.join(AARCH64)}")
@pytest.mark.skipif(original.compiler() is None or not c.usable_builds(), reason="nothing to compare with")
def test_aarch64_is_bit_identical(
    tmp_path: Path, kernels: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cross-compiled and run in an emulator."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    builds = original.builds()
    made = driver([AARCH64[0]], tmp_path)
    assert {"neon", "dotprod", "i8mm"} < builds.keys()
    for name in builds:
        subprocess.run([AARCH64[0], *original.call_of(name, tmp_path / name)], check=True)
        call = [AARCH64[1], "-L", "/usr/aarch64-linux-gnu", str(made), str(tmp_path / name)]
        found = subprocess.run(call, capture_output=True, text=True)
        assert (found.stderr, found.stdout) == ("", kernels(original.ANYWHERE)), name


@pytest.mark.skipif("avx2" not in c.usable_builds(), reason="needs avx2")
def test_the_environment_selects_the_build() -> None:
    """No other build is loaded."""
    code = "from headwise.runtime.native import library as c; print(c.instructions(), c.library()._name)"
    environment = {**os.environ, c.SWITCH: "avx2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["avx2", str(original.library_of("avx2"))]
