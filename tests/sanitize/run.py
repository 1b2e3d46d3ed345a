"""`make sanitize`: the compiled library under the sanitizers of addresses and of undefined behaviour.

    run.py [--rounds N] [--best] [--tests]

Every set of instructions that this processor runs, with allocations that can be made to fail: the program that hashes
every kernel, which must also print the same for each, and the fuzzer (`fuzz.py`). With --tests the library's own tests
too, with the best of the builds. Needs gcc or clang with their sanitizers; says so and ends well where there are none.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests/unit/native"
SANITIZE = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# The code for AVX-VNNI in the encoding of AVX-512, for processors which have that alone.
NARROW = ("-DNARROW", "-mavx512vl", "-mavx512vnni", "-mavx2", "-mfma")
# AMX's instructions in plain C.
EMULATED = ("-include", str(TESTS / "amx.h"))
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}",
    "OMP_NUM_THREADS": "1",
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # the interpreter never gives all back
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def compiled(name: str, flags: tuple[str, ...], folder: Path) -> Path:
    """One build with its sanitizers."""
    from headwise.runtime.native import build

    out = build.library_of(name, folder)
    sources = [str(build.FOLDER / source) for source in (*build.SOURCES, build.ASKS)]
    own = [*build.FLAGS, *flags, *SANITIZE, "-w", f"-DHEADWISE_VERSION={build.version()}"]
    scarce = folder / "scarce.o"
    call = build.compiler() or []
    if not scarce.is_file():
        subprocess.run([*call, *build.FLAGS, "-c", str(TESTS / "scarce.c"), "-o", str(scarce)], check=True)
    include = ["-include", str(TESTS / "scarce.h"), "-shared"]
    subprocess.run([*call, *own, *include, *sources, str(scarce), "-o", str(out), "-lm"], check=True)
    return out


def driver(folder: Path) -> Path:
    """The program that hashes what a build yields, with its sanitizers."""
    from headwise.runtime.native import build

    made, flags = folder / "kernels", ["-std=gnu11", "-DSCALAR", "-w", f"-I{build.FOLDER}", *SANITIZE]
    call = [*(build.compiler() or []), *flags, str(TESTS / "kernels.c"), "-o", str(made), "-ldl", "-lm"]
    subprocess.run(call, check=True)
    return made


def variants() -> dict[str, tuple[str, ...]]:
    """The builds that run here, and how a compiler is told of them."""
    from headwise.runtime.native import build
    from headwise.runtime.native.library import opened

    asked = opened(build.ANYWHERE)
    runs = [name for name in build.builds() if asked and asked.headwise_runs_here(name.encode())]
    found = {name: build.builds()[name] for name in runs}
    if "avx512" not in found:
        return found
    return {**found, "narrow": NARROW, "emulated": (*build.BUILDS["x86_64"][build.UNTRIED], *EMULATED)}


def preloaded() -> str:
    """The runtime of the sanitizers, which has to be there before the interpreter is; nothing where there is none."""
    from headwise.runtime.native import build

    call = [*(build.compiler() or ["gcc"]), "-print-file-name=libasan.so"]
    found = subprocess.run(call, capture_output=True, text=True).stdout.strip()
    return found if Path(found).is_file() else ""


NATIVE_TESTS = ("products", "network", "walk", "families", "search", "encoder")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sanitize")
    parser.add_argument("--rounds", type=int, default=3000, help="of the fuzzer, for each build")
    parser.add_argument("--best", action="store_true", help="of the builds that run here the best alone")
    parser.add_argument("--tests", action="store_true", help="the library's own tests as well")
    asked = parser.parse_args()
    runtime, found = preloaded(), variants()
    found = dict(list(found.items())[:1]) if asked.best else found
    if not (runtime and found):
        print("make sanitize needs gcc with libasan, and the library built: skipped")
        return
    inside = {**os.environ, **ENVIRONMENT}
    preload = {**inside, "LD_PRELOAD": runtime}
    with TemporaryDirectory() as name:
        folder = Path(name)
        program, hashes = driver(folder), set()
        for build, flags in found.items():
            library = compiled(build, flags, folder)
            hashes.add(subprocess.run([program, library], env=inside, check=True, capture_output=True).stdout)
            if len(hashes) > 1:
                sys.exit(f"{build} yields other bits")
            call = [sys.executable, Path(__file__).with_name("fuzz.py"), library, str(asked.rounds)]
            print(f"{build}: ", end="", flush=True)
            subprocess.run(call, env=preload, check=True)
        if asked.tests:
            plugin = {
                **preload,
                "HEADWISE_SANITIZED": name,
                "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{Path(__file__).parent}",
            }
            tests = [str(TESTS / f"test_{name}.py") for name in NATIVE_TESTS]
            call = [sys.executable, "-m", "pytest", "-q", "-p", "sanitized", "-p", "no:cacheprovider", *tests]
            subprocess.run(call, env=plugin, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
