"""The compiled library for a browser, made with the compiler of the Python package `ziglang`, once for these sources.

What was made is kept in the cache, as prepared corpora are.

Two builds: `simd` runs wherever WebAssembly has SIMD, `relaxed` is faster where it has the relaxed instructions too.
"""

import subprocess
from pathlib import Path

from sightline.data.cache import cache, cache_folder
from sightline.errors import UserError
from sightline.native.build import FLAGS, FOLDER, ZIG, version

SOURCES = ("products.c", "activations.c", "attention.c", "transformer.c", "search.c", "web.c")
BUILDS = {"simd": ("-msimd128",), "relaxed": ("-msimd128", "-mrelaxed-simd")}
TARGET = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-s")  # a library that asks its host for nothing
LEFT_OUT = ("-fPIC", "-pthread")  # of the flags of every build
CALLED = ("search", "start", "end", "look", "exact")  # by assets/engine.js
EXPORTED = ("malloc", "free", "aligned_alloc", *(f"sightline_{name}" for name in CALLED))
INSTALL = "pip install 'sightline[web]'"


def binaries() -> dict[str, bytes]:
    """Both builds; a `UserError` where they are not there and cannot be made."""
    return {build: binary(build) for build in BUILDS}


def binary(build: str) -> bytes:
    """A build, compiled if it is not there yet."""
    path = path_of(build)
    if not path.is_file():
        with cache(None):
            compile_to(path, BUILDS[build])
    return path.read_bytes()


def path_of(build: str) -> Path:
    """Where a build of these sources is."""
    return cache_folder(None) / f"library_{build}_{version():08x}.wasm"


def compile_to(path: Path, instructions: tuple[str, ...]) -> None:
    """Compile the library."""
    try:
        import ziglang  # noqa: F401  # pyright: ignore
    except ImportError:
        raise UserError(f"--to web compiles the library for browsers, which needs a compiler: {INSTALL}") from None
    draft = path.with_suffix(".draft")
    flags = [flag for flag in FLAGS if flag not in LEFT_OUT]
    exports = [f"-Wl,--export={name}" for name in EXPORTED]
    sources = [str(FOLDER / name) for name in SOURCES]
    call = [*TARGET, *flags, *instructions, f"-DSIGHTLINE_VERSION={version()}", *sources, *exports, "-lm"]
    done = subprocess.run([*ZIG, *call, "-o", str(draft)], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"ziglang could not compile the library for browsers: {done.stderr.strip()[-500:]}")
    draft.replace(path)
