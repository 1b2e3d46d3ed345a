"""Compiling the library, without incomplete files after a failure."""

import os
import platform
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from headwise.runtime.native import build as original
from headwise.runtime.native.library import SWITCH, usable_builds

CPUINFO = Path("/proc/cpuinfo")
FLAGS = CPUINFO.read_text().split() if CPUINFO.is_file() else []
CLANG = next((name for name in ("clang", *(f"clang-{n}" for n in range(22, 13, -1))) if shutil.which(name)), "")
OLD = ["_library.so", "_library_scalar.so"]
needs_compiler = pytest.mark.skipif(
    not original.builds() or original.compiler() is None, reason="no C compiler for this kind of machine"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the sources with old libraries."""
    copy = tmp_path / "native"
    shutil.copytree(original.FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__", "_library*"))
    for name, content in zip(OLD, ("of a version that had one build", "old"), strict=True):
        (copy / name).write_text(content)
    return copy


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """A shell script as compiler."""

    def write(text: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)


def build_in(folder: Path) -> Any:
    return runpy.run_path(str(folder / "build.py"))


def made(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("_library"))


@needs_compiler
@pytest.mark.skipif(os.environ.get(SWITCH) == "0", reason="nobody wants the library")
@pytest.mark.parametrize(
    ("build", "needs"), [("avx512", "avx512_vnni"), ("avxvnni", "avx_vnni"), ("avx2", "avx2"), ("scalar", "")]
)
def test_the_library_is_built(build: str, needs: str) -> None:
    """Otherwise all its tests would be skipped."""
    if build not in original.builds() or (needs and needs not in FLAGS):
        pytest.skip(f"{build} is not for here")
    assert build in usable_builds(), "build it: python src/headwise/runtime/native/build.py"


@pytest.mark.compiles
@needs_compiler
def test_a_new_library_replaces_the_old_one(
    folder: Path, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_hurry = script(f'exec {shlex.join(original.compiler() or [])} "$@" -O0')
    monkeypatch.setenv("CC", str(in_a_hurry))
    assert build_in(folder)["build_library"]() == ""
    assert made(folder) == sorted(original.library_of(name).name for name in original.builds())
    assert all((folder / name).read_bytes().startswith(b"\x7fELF") for name in made(folder))


@pytest.mark.skipif(not original.builds(), reason="there is no library for this kind of machine")
def test_programs_find_the_old_library_until_the_new_one_is_complete(
    folder: Path, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every call of the compiler."""
    seen = folder.with_name("seen")
    watching = script(
        f"cat {folder}/_library_scalar.so >> {seen}; echo >> {seen}\n"
        'while [ "$1" != -o ]; do shift; done\necho new > "$2"'
    )
    monkeypatch.setenv("CC", str(watching))
    assert build_in(folder)["build_library"]() == ""
    assert set(seen.read_text().split()) == {"old"}
    assert made(folder) == sorted(original.library_of(name).name for name in original.builds())
    assert {(folder / name).read_text() for name in made(folder)} == {"new\n"}


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.skipif(not original.builds(), reason="there is no library for this kind of machine")
def test_without_a_compiler(folder: Path) -> None:
    """The old library stays; programs ignore it if it was built from other sources."""
    code = build_in(folder)
    assert code["compiler"]() is None
    assert "no C compiler" in code["build_library"]()
    assert made(folder) == OLD


def test_on_another_kind_of_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert "riscv64" in build_in(folder)["build_library"]()
    assert made(folder) == OLD


def test_files_of_a_killed_build_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an hour; before, the build may be running."""
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    for pid, age in ((4321, 3700), (4322, 3500)):
        path = folder / f"_library_avx2.{pid}"
        path.write_text("half")
        os.utime(path, (time.time() - age,) * 2)
    build_in(folder)["build_library"]()
    assert made(folder) == sorted([*OLD, "_library_avx2.4322"])


@pytest.mark.skipif(not original.builds(), reason="there is no library for this kind of machine")
def test_a_compiler_that_fails(folder: Path, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves an incomplete file."""
    written = 'for name; do case "$name" in *_library*) echo half > "$name";; esac; done'
    broken = script(f"{written}\necho out of luck >&2\nexit 3")
    monkeypatch.setenv("CC", f"{broken} -m64")
    failure = build_in(folder)["build_library"]()
    assert failure.startswith(str(broken)) and failure.endswith("failed: out of luck")
    assert made(folder) == OLD and (folder / "_library_scalar.so").read_text() == "old"


@pytest.mark.usefixtures("no_compiler")
def test_the_compiler_is_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CC comes first, then the path, then the Python package."""
    for name in ("cc", "gcc", "clang", "mine"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setitem(sys.modules, "ziglang", sys)
    zig = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]  # not with all that this processor has
    assert original.compiler() == zig
    monkeypatch.setenv("PATH", str(tmp_path))
    assert original.compiler() == ["gcc"]  # and not cc, which may be anything
    (tmp_path / "gcc").unlink()
    assert original.compiler() == ["cc"]
    monkeypatch.setenv("CC", "mine -m64")
    assert original.compiler() == ["mine", "-m64"]
    monkeypatch.setenv("CC", "another")
    assert original.compiler() == zig


@pytest.mark.compiles
@needs_compiler
def test_an_old_compiler(folder: Path, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsupported builds are skipped, the others are made."""
    known = f'exec {shlex.join(original.compiler() or [])} "$@" -O0'
    old = script(f'case "$*" in *avx*|*dotprod*) echo what? >&2; exit 1;; esac\n{known}')
    monkeypatch.setenv("CC", str(old))
    assert build_in(folder)["build_library"]() == ""
    plain = [name for name, flags in original.builds().items() if not re.search("avx|dotprod", " ".join(flags))]
    assert made(folder) == sorted(f"_library_{name}.so" for name in plain) != []


@pytest.mark.compiles
@pytest.mark.parametrize("call", [["gcc"], [CLANG or "clang"], [*original.ZIG]], ids=["gcc", "clang", "zig"])
def test_every_compiler_compiles_the_hash_program(call: list[str], tmp_path: Path) -> None:
    """Also compilers that do not convert pointers to integers."""
    if not shutil.which(call[0]) or ("ziglang" in call and not find_spec("ziglang")):
        pytest.skip(f"needs {' '.join(call[-2:])}")
    flags = ["-std=gnu11", "-DSCALAR", "-Werror=int-conversion", f"-I{original.FOLDER}", "-c"]
    source = Path(__file__).with_name("kernels.c")
    ran = subprocess.run(
        [*call, *flags, str(source), "-o", str(tmp_path / "kernels.o")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.compiles
@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the instructions of x86-64")
@pytest.mark.parametrize(("build", "sums"), [("avx2", 12), ("avx512", 24)])
@pytest.mark.parametrize("name", ["gcc", CLANG or "clang"])
def test_the_sums_of_a_tile_stay_in_registers(name: str, build: str, sums: int, tmp_path: Path) -> None:
    """With every compiler: float32 products take four times as long if sums are in memory."""
    if not shutil.which(name):
        pytest.skip(f"needs {name}")
    out = tmp_path / "products.s"
    call = [name, *original.FLAGS, *original.builds()[build], "-DHEADWISE_VERSION=0", "-S"]
    subprocess.run([*call, str(original.FOLDER / "products.c"), "-o", str(out)], check=True)
    blocks = re.split(r"^\.L\w+:", out.read_text(), flags=re.MULTILINE)
    sums_and_stores = [(b.count("vfmadd"), len(re.findall(r"vmov\w+\s+%[yz]mm\d+, [^%]*\(", b))) for b in blocks]
    assert (sums, 0) in sums_and_stores  # of six rows
