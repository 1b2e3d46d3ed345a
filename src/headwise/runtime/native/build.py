"""Compiles the C sources of this folder, once for each instruction set of this kind of processor.

Needs only the standard library and a C compiler. `hatch_build.py` calls it to install the package or build a wheel. Run
it by hand after changing the sources:

    python src/headwise/runtime/native/build.py
"""

import os
import platform
import sys
import zlib
from functools import cache
from pathlib import Path
from time import time
from typing import Any

FOLDER = Path(__file__).parent
SOURCES = (
    "products.c",
    "activations.c",
    "attention.c",
    "layers.c",
    "encoder.c",
    "decoder.c",
    "prompts.c",
    "slots.c",
    "transformer.c",
    "reading.c",
    "search.c",
    "training.c",
    "parallel.c",
    "checksum.c",
    "layout.c",
    "blocks.c",
    "pool.c",
)
HOUR = 3600  # seconds
ANYWHERE = "scalar"  # the build that runs everywhere and detects the processor's instructions
ASKS = "processor.c"
UNTRIED = "amx"  # tested only in an emulator, so used only on request
# Contraction could round the same expression differently in two functions, so results would depend on the batch.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-pthread", "-fvisibility=hidden")
# The instruction sets of each kind of processor, best first, and their compiler flags. UNTRIED and ANYWHERE are used
# only on request.
AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx2", "-mfma")
BUILDS = {
    "x86_64": {
        "avx512": AVX512,
        "avxvnni": ("-mavxvnni", "-mavx2", "-mfma"),
        "avx2": ("-mavx2", "-mfma"),
        UNTRIED: (*AVX512, "-mamx-tile", "-mamx-int8"),
        ANYWHERE: ("-DSCALAR", "-O2"),  # a reference for tests: -O3 would take half of the build time
    },
    "aarch64": {
        "i8mm": ("-march=armv8.2-a+dotprod+i8mm",),
        "dotprod": ("-march=armv8.2-a+dotprod",),
        "neon": (),
        ANYWHERE: ("-DSCALAR", "-O2"),
    },
}
BUILDS |= {"arm64": BUILDS["aarch64"], "AMD64": BUILDS["x86_64"]}  # their names on macOS and Windows
ZIG = (sys.executable, "-m", "ziglang", "cc")
IN_ZIG = {  # zig has processors instead of architectures
    "-march=armv8.2-a+dotprod": "-mcpu=generic+v8_2a+dotprod",
    "-march=armv8.2-a+dotprod+i8mm": "-mcpu=generic+v8_2a+dotprod+i8mm",
}


def builds(machine: str = "") -> dict[str, tuple[str, ...]]:
    """The builds for a kind of machine (default: this one); empty if it is not supported."""
    return BUILDS.get(machine or platform.machine(), {})


def library_of(build: str, folder: Path = FOLDER) -> Path:
    """The path of the library for an instruction set, the same on every system."""
    return folder / f"_library_{build}.so"


def compiler() -> list[str] | None:
    """The command of a C compiler: `CC`, one on the path, or that of the Python package `ziglang`; None without any.

    gcc is preferred because its code is the fastest. It is not used on Windows, where it does not align the stack for
    32-byte registers (gcc bug 54412).
    """
    import shutil  # not needed to load a library, like the other imports in functions

    names = [os.environ["CC"]] if os.environ.get("CC") else [] if os.name == "nt" else ["gcc", "cc", "clang"]
    for name in names:
        if shutil.which(name.split()[0]):
            return name.split()
    try:
        import ziglang  # noqa: F401  # pyright: ignore
    except ImportError:
        return None
    return [*ZIG, "-mcpu=baseline"]  # by default it uses all instructions of this processor


def call_of(build: str, out: Path, machine: str = "") -> list[str]:
    """The compiler arguments for the library `out`."""
    sources = [str(FOLDER / name) for name in (*SOURCES, *((ASKS,) if build == ANYWHERE else ()))]
    flags = [*FLAGS, *builds(machine)[build], f"-DHEADWISE_VERSION={version()}"]
    return [*flags, "-shared", *sources, "-o", str(out), "-lm"]


@cache
def version() -> int:
    """A checksum of the sources, which is compiled into each library."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]")))) & 0x7FFFFFFF


def build_library(folder: Path = FOLDER, machine: str = "", command: list[str] | None = None) -> str:
    """Compile every build that the compiler supports into `folder`; returns why it failed, or "".

    Libraries are compiled under temporary names and renamed when all are complete, so programs keep the old ones until
    then, also after a failure. `left_out` lists builds that the compiler does not support. For other kinds of machines,
    `command` is a cross compiler.
    """
    _remove_abandoned(folder)
    if not builds(machine):
        return f"not available for {platform.system()} on {machine or platform.machine()}"
    command = command or compiler()
    if command is None:
        return "no C compiler found (gcc, cc, clang, or pip install ziglang)"
    known = [name for name, flags in builds(machine).items() if name == ANYWHERE or supports(command, flags)]
    made = {name: library_of(name, folder).with_suffix(f".{os.getpid()}") for name in known}
    try:
        for name, path in made.items():
            done = run_compiler([*command, *call_of(name, path, machine)])
            if done.returncode:
                return f"{command[0]} failed: {done.stderr.strip()[-500:]}"
        for name, path in made.items():
            path.replace(library_of(name, folder))
    finally:
        for path in made.values():
            path.unlink(missing_ok=True)
    for path in folder.glob("_library*.so"):
        if path not in [library_of(name, folder) for name in made]:  # built from older sources
            path.unlink(missing_ok=True)
    return ""


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of a killed build; recent ones may belong to a running build."""
    for path in folder.glob("_library*"):
        if path.suffix != ".so" and time() - path.stat().st_mtime > HOUR:
            path.unlink(missing_ok=True)


def left_out(folder: Path = FOLDER, machine: str = "") -> list[str]:
    """The builds for a kind of machine that are not in `folder`."""
    return [name for name in builds(machine) if not library_of(name, folder).is_file()]


def supports(command: list[str], flags: tuple[str, ...]) -> bool:
    """Whether a compiler supports these instructions; compilers from before 2018 lack some.

    Compiles an empty file, because `zig cc` fails with `-fsyntax-only` whatever the other flags are.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:
        source = Path(name, "empty.c")
        source.touch()
        return not run_compiler([*command, *flags, "-c", str(source), "-o", str(source.with_suffix(".o"))]).returncode


def run_compiler(call: list[str]) -> Any:
    """Run a compiler, with options translated for zig; returns the result of `subprocess.run`."""
    import subprocess

    call = [IN_ZIG.get(part, part) for part in call] if "ziglang" in call else call
    return subprocess.run(call, capture_output=True, text=True)


if __name__ == "__main__":
    failure = build_library()
    if failure:
        sys.exit(f"the compiled library was not built: {failure}")
    if left_out():
        print(
            f"not built, because the compiler does not support their instructions: {', '.join(left_out())}",
            file=sys.stderr,
        )
    print(*(path for path in map(library_of, builds()) if path.is_file()), sep="\n")
