"""The compiled library for browsers, built with the compiler of the Python package `ziglang` and cached.

Two builds: `simd` runs wherever WebAssembly has SIMD, `relaxed` is faster where relaxed SIMD is available.
"""

import subprocess
from pathlib import Path

from headwise.errors import UserError
from headwise.runtime.native.build import FLAGS, FOLDER, ZIG, version
from headwise.runtime.native.build import SOURCES as LIBRARY_SOURCES
from headwise.text.prepared.cache import cache, cache_folder

NOT_HERE = ("training.c", "parallel.c", "checksum.c", "layout.c")  # sources that a page does not use
SOURCES = (*(name for name in LIBRARY_SOURCES if name not in NOT_HERE), "web.c")
BUILDS = {"simd": ("-msimd128",), "relaxed": ("-msimd128", "-mrelaxed-simd")}
TARGET = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-s")  # a library without imports
EXCLUDED_FLAGS = ("-fPIC", "-pthread")  # native flags that do not apply
# Called by assets/engine.js.
C_FUNCTIONS = (*("search", "start", "read_prompts", "end", "exact", "read", "linear_forward", "dequantised"),)
EXPORTED_SYMBOLS = ("malloc", "free", "aligned_alloc", *(f"headwise_{name}" for name in C_FUNCTIONS))
INSTALL = 'pip install "headwise[web]"'


def wasm_builds() -> dict[str, bytes]:
    """Both builds; `UserError` if they cannot be compiled."""
    return {build: wasm_build(build) for build in BUILDS}


def wasm_build(build: str) -> bytes:
    """One build, compiled if not in the cache."""
    path = wasm_path(build)
    if not path.is_file():
        with cache(None):
            compile_wasm(path, BUILDS[build])
    return path.read_bytes()


def wasm_path(build: str) -> Path:
    """The path of a build for these sources."""
    return cache_folder(None) / f"library_{build}_{version():08x}.wasm"


def compile_wasm(path: Path, instructions: tuple[str, ...]) -> None:
    """Compile the library."""
    try:
        import ziglang  # noqa: F401  # pyright: ignore
    except ImportError:
        raise UserError(f"--to web compiles the library for browsers, which needs a compiler: {INSTALL}") from None
    draft = path.with_suffix(".draft")
    flags = [flag for flag in FLAGS if flag not in EXCLUDED_FLAGS]
    exports = [f"-Wl,--export={name}" for name in EXPORTED_SYMBOLS]
    sources = [str(FOLDER / name) for name in SOURCES]
    call = [*TARGET, *flags, *instructions, f"-DHEADWISE_VERSION={version()}", *sources, *exports, "-lm"]
    done = subprocess.run([*ZIG, *call, "-o", str(draft)], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"ziglang could not compile the library for browsers: {done.stderr.strip()[-500:]}")
    draft.replace(path)
