"""Compile the C sources of this folder into one library; needs nothing but the standard library and a C compiler.

`hatch_build.py` calls it when the package is installed or a wheel is made. By hand, after a change of the sources:

    python src/sightline/native/build.py
"""

import os
import platform
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = ("products.c", "activations.c", "attention.c", "transformer.c", "search.c", "training.c", "team.c")
ANYWHERE = "processor.c"  # asks what the processor can do, and so must not need it
LIBRARY = FOLDER / "_library.so"
# Contraction would let a compiler round an expression differently in two places, and results depend on company.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
)
INSTRUCTIONS = ("-mavx2", "-mfma")
PROCESSORS = ("x86_64",)


def possible() -> bool:
    """Whether there are sources for this kind of machine."""
    return platform.machine() in PROCESSORS and os.name == "posix"


def compiler() -> list[str] | None:
    """How to call a C compiler: `CC`, one on the path, or that of the Python package `ziglang`; None: there is none.

    What gcc makes of the sources is the fastest, and `cc` may be any other.
    """
    names = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "cc", "clang"]
    for name in names:
        if shutil.which(name.split()[0]):
            return name.split()
    try:
        import ziglang  # noqa: F401  # pyright: ignore
    except ImportError:
        return None
    return [sys.executable, "-m", "ziglang", "cc"]


def flags_of(source: str) -> list[str]:
    """How one of the sources is compiled."""
    return list(FLAGS) if source == ANYWHERE else [*FLAGS, *INSTRUCTIONS]


def version() -> int:
    """A number that changes with the sources: a library knows of which it was made."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]")))) & 0x7FFFFFFF


def build() -> str:
    """Compile the library; why not, or nothing if it is there now. One that could not be renewed is taken away."""
    LIBRARY.unlink(missing_ok=True)
    if not possible():
        return f"there is none for {platform.system()} on {platform.machine()} yet"
    command = compiler()
    if command is None:
        return "no C compiler was found (gcc, cc, clang, or pip install ziglang)"
    made = LIBRARY.with_suffix(f".{os.getpid()}")
    anywhere = made.with_suffix(f"{made.suffix}.o")
    sources = [str(FOLDER / name) for name in SOURCES]
    flags = [*flags_of(SOURCES[0]), f"-DSIGHTLINE_VERSION={version()}"]
    try:
        for call in (
            [*flags_of(ANYWHERE), "-c", str(FOLDER / ANYWHERE), "-o", str(anywhere)],
            [*flags, "-shared", *sources, str(anywhere), "-o", str(made), "-lm"],
        ):
            done = subprocess.run([*command, *call], capture_output=True, text=True)
            if done.returncode:
                return f"{command[0]} failed: {done.stderr.strip()[-500:]}"
        made.replace(LIBRARY)
    finally:
        for path in (made, anywhere):
            path.unlink(missing_ok=True)
    return ""


if __name__ == "__main__":
    failure = build()
    if failure:
        sys.exit(f"the compiled library was not built: {failure}")
    print(LIBRARY)
