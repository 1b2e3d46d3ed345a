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
SOURCES = ("products.c", "attention.c", "transformer.c", "search.c", "training.c", "team.c")
LIBRARY = FOLDER / "_library.so"
# Contraction would let a compiler round an expression differently in two places, and results depend on company.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-mavx2",
    "-mfma",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
)
PROCESSORS = ("x86_64",)


def possible() -> bool:
    """Whether there are sources for this kind of machine."""
    return platform.machine() in PROCESSORS and os.name == "posix"


def compiler() -> list[str] | None:
    """How to call a C compiler: `CC`, one on the path, or that of the Python package `ziglang`; None: there is none."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    for name in names:
        if shutil.which(name.split()[0]):
            return name.split()
    try:
        import ziglang  # noqa: F401  # pyright: ignore
    except ImportError:
        return None
    return [sys.executable, "-m", "ziglang", "cc"]


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
        return "no C compiler was found (cc, gcc, clang, or pip install ziglang)"
    made = LIBRARY.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [
            *command,
            *FLAGS,
            f"-DSIGHTLINE_VERSION={version()}",
            *(str(FOLDER / name) for name in SOURCES),
            "-o",
            str(made),
            "-lm",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        made.unlink(missing_ok=True)
        return f"{command[0]} failed: {done.stderr.strip()[-500:]}"
    made.replace(LIBRARY)
    return ""


if __name__ == "__main__":
    failure = build()
    if failure:
        sys.exit(f"the compiled library was not built: {failure}")
    print(LIBRARY)
