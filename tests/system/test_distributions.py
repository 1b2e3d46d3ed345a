"""Wheels, as written to dist/ by `make wheels`: each names its platform, and contains only the libraries for it.

Also the source distribution, which installs without a compiler. Without wheels, or hatchling, the tests are skipped.
"""

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from safetensors.numpy import save_file

from headwise import load
from headwise.config.data import TranslationData
from headwise.config.from_recipe import transformer_config
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.runtime.checkpoint.shapes import parameter_shapes
from headwise.runtime.checkpoint.trained import WEIGHTS, write_settings
from headwise.runtime.native.build import ANYWHERE, BUILDS, FOLDER, library_of
from headwise.runtime.native.build import compiler as own_compiler
from headwise.runtime.native.library import usable_builds
from headwise.text.tokens.tokenizer import Tokenizer

pytestmark = pytest.mark.distributed
ROOT = Path(__file__).parents[2]
AARCH64 = Path(os.environ.get("HEADWISE_AARCH64", ROOT / ".venv/aarch64"))  # written by aarch64_python.sh
DIST = Path(os.environ.get("HEADWISE_DIST", ROOT / "dist"))
WHEELS = sorted(DIST.glob("headwise-*.whl"))
HERE = [wheel for wheel in WHEELS if "manylinux" in wheel.name and platform.machine() in wheel.name]
ELF, MACH_O, SHARED_PE = {"x86_64": 62, "aarch64": 183}, {"x86_64": 0x01000007, "arm64": 0x0100000C}, 0x2000
SIGNATURE, BUILD_VERSION = 0x1D, 0x32  # load commands of a library on macOS


def tag(wheel: Path) -> str:
    return wheel.stem.split("-")[-1]


def machine(wheel: Path) -> str:
    return "x86_64" if tag(wheel).endswith(("x86_64", "amd64")) else tag(wheel).split("_")[-1]


def libraries(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as contents:
        names = [name for name in contents.namelist() if "/_library" in name]
        return {Path(name).name: contents.read(name) for name in names}


@pytest.mark.parametrize("wheel", WHEELS, ids=tag)
def test_contents_of_a_wheel(wheel: Path) -> None:
    """Every build for its kind of machine and no other, and their sources."""
    kind = "aarch64" if "arm" in machine(wheel) else machine(wheel)
    assert sorted(libraries(wheel)) == sorted(library_of(name).name for name in BUILDS[kind])
    with zipfile.ZipFile(wheel) as contents:
        names = set(contents.namelist())
        library = {f"headwise/runtime/native/{name}" for name in ("build.py", "simd.h")}
        assert {*library, "headwise/recipes/tiny.toml"} <= names
        assert not [name for name in names if name.startswith("tests")]
        (about,) = (contents.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: false" in about and f"Tag: py3-none-{tag(wheel)}" in about


@pytest.mark.parametrize("wheel", [w for w in WHEELS if "linux" in w.name], ids=tag)
def test_libraries_for_linux(wheel: Path) -> None:
    """For that processor, without symbols that are newer than the system in the tag."""
    newest = tuple(map(int, re.findall(r"manylinux_(\d+)_(\d+)", tag(wheel))[0]))
    for content in libraries(wheel).values():
        assert content[:5] == b"\x7fELF\x02" and struct.unpack_from("<H", content, 18) == (ELF[machine(wheel)],)
        used = {tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", content)}
        assert used and max(used) <= newest
        assert set(re.findall(rb"lib[\w.+-]*\.so[.\d]*", content)) <= {b"libc.so.6", b"libm.so.6", b"libpthread.so.0"}


@pytest.mark.parametrize("wheel", [w for w in WHEELS if "macosx" in w.name], ids=tag)
def test_libraries_for_macos(wheel: Path) -> None:
    """For that processor and the system in the tag, and signed, because unsigned libraries are not loaded."""
    oldest = tuple(map(int, re.findall(r"macosx_(\d+)_(\d+)", tag(wheel))[0]))
    for content in libraries(wheel).values():
        magic, processor, _, _, count = struct.unpack_from("<IIIII", content)
        assert (magic, processor) == (0xFEEDFACF, MACH_O[machine(wheel)])
        commands, at = {}, 32
        for _ in range(count):
            kind, size = struct.unpack_from("<II", content, at)
            commands[kind], at = at, at + size
        system = struct.unpack_from("<I", content, commands[BUILD_VERSION] + 12)[0]
        assert (system >> 16, system >> 8 & 0xFF) <= oldest
        assert SIGNATURE in commands or machine(wheel) != "arm64"


@pytest.mark.parametrize("wheel", [w for w in WHEELS if "win" in w.name], ids=tag)
def test_libraries_for_windows(wheel: Path) -> None:
    """Libraries for that processor, which export their functions."""
    for name, content in libraries(wheel).items():
        header = struct.unpack_from("<I", content, 0x3C)[0]
        assert content[:2] == b"MZ" and content[header : header + 4] == b"PE\0\0"
        processor, flags = (struct.unpack_from("<H", content, header + at)[0] for at in (4, 22))
        assert processor == 0x8664 and flags & SHARED_PE
        assert b"headwise_search" in content and (b"headwise_runs_here" in content) == (ANYWHERE in name)


@pytest.mark.skipif(not shutil.which("objdump"), reason="needs objdump")
@pytest.mark.parametrize("wheel", [w for w in WHEELS if machine(w) == "x86_64" and "linux" in w.name], ids=tag)
def test_no_build_has_more_than_its_instructions(wheel: Path, tmp_path: Path) -> None:
    """The portable build has no AVX, the AVX2 build no AVX-512, the AVX-VNNI build only its own encoding."""

    def assembled(build: str) -> str:
        path = tmp_path / build
        path.write_bytes(libraries(wheel)[library_of(build).name])
        return subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout

    assert not re.search(r"%[yz]mm|\tv[a-z0-9]+ ", assembled(ANYWHERE))
    assert "%ymm" in assembled("avx2") and not re.search(r"%zmm|%k[1-7]|vpdpbusd", assembled("avx2"))
    assert "{vex} vpdpbusd" in assembled("avxvnni") and not re.search(r"%zmm|%k[1-7]", assembled("avxvnni"))
    assert re.search(r"vpdpbusd.*%zmm", assembled("avx512"))


@pytest.mark.skipif(not shutil.which("auditwheel"), reason="needs auditwheel")
@pytest.mark.parametrize("wheel", [w for w in WHEELS if "linux" in w.name], ids=tag)
def test_auditwheel_agrees(wheel: Path) -> None:
    ran = subprocess.run(["auditwheel", "show", wheel], capture_output=True, text=True, check=True)
    assert tag(wheel) in ran.stdout


KERNELS = ROOT / "tests/unit/native/kernels.c"
ZIG_WINDOWS = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"]
WINE = shutil.which("wine64") or "/usr/lib/wine/wine64"
ELSEWHERE = {  # compiler of the program that hashes every kernel, its emulator, and the builds
    "manylinux_2_17_aarch64": (
        ["aarch64-linux-gnu-gcc"],
        ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"],
        ["i8mm", "dotprod", "neon"],
    ),
    "win_amd64": (ZIG_WINDOWS, [WINE], [name for name in usable_builds() if platform.machine() == "x86_64"]),
}


def hashes(compiler: list[str], emulator: list[str], library: Path) -> list[str]:
    """The results of a build, as printed by `kernels.c`."""
    program = library.with_name("kernels.exe")
    if not program.is_file():
        flags = ["-std=gnu11", "-O1", "-DSCALAR", "-w", f"-I{FOLDER}", str(KERNELS), "-o", program]
        subprocess.run([*compiler, *flags, *([] if "windows" in str(compiler) else ["-ldl"]), "-lm"], check=True)
    ran = subprocess.run([*emulator, program, library], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


@pytest.mark.parametrize("wheel", [w for w in WHEELS if tag(w) in ELSEWHERE], ids=tag)
def test_builds_give_the_bits_of_this_machine(wheel: Path, tmp_path: Path) -> None:
    """Every kernel and whole searches, in an ARM emulator and in Wine."""
    compiler, emulator, builds = ELSEWHERE[tag(wheel)]
    needs_zig = "ziglang" in compiler and not find_spec("ziglang")
    if needs_zig or not (
        own_compiler() and usable_builds() and shutil.which(compiler[0]) and shutil.which(emulator[0])
    ):
        pytest.skip(f"needs {compiler[0]} and {emulator[0]}")
    here = tmp_path / "here" / "library"
    here.parent.mkdir()
    shutil.copy(library_of(ANYWHERE), here)
    wanted = hashes(own_compiler() or [], [], here)
    assert len(wanted) > 200
    for build in builds:
        path = tmp_path / library_of(build).name
        path.write_bytes(libraries(wheel)[path.name])
        assert hashes(compiler, emulator, path) == wanted, build


TRANSLATE = """
import sys
from headwise.runtime.native import build, library
from headwise import load
print(library.instructions() or "none", build.compiler(), build.FOLDER)
print(load(sys.argv[1]).translate(["the cat"], beam_size=2)[0].text)
print("torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with random weights; it always writes the same."""
    folder = tmp_path_factory.mktemp("models") / "random"
    tokenizer = Tokenizer.train(["the cat sat on the mat", "a dog and a cat"], TranslationData(vocab_size=300))
    widths = {"d_model": 18, "d_ff": 33, "n_heads": 3, "n_encoder_layers": 1, "n_decoder_layers": 1}
    shape = TransformerConfig(vocab_size=tokenizer.vocab_size, **widths)
    write_settings(folder, RunConfig(model=shape), tokenizer, {})
    draw = np.random.default_rng(0)
    arrays = {
        name: draw.standard_normal(of).astype(np.float32)
        for name, of in parameter_shapes(transformer_config(shape)).items()
    }
    save_file(arrays, folder / WEIGHTS)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program without a compiler, neither on its path nor among Python's packages."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "ziglang.py").write_text("raise ImportError('not here')\n")
    chosen = ("CC", "HEADWISE_NATIVE", "OPENBLAS_CORETYPE")  # this would be the processor, whatever an emulator has
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    return {**kept, "PATH": "", "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory, bare: dict[str, str]) -> Callable[..., str]:
    """The interpreter of a new environment with a wheel or the sources, and copies of exactly what it requires."""

    def make(package: Path | str, extra: str = "", **variables: str) -> str:
        folder = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        building = {**bare, "PYTHONPATH": os.pathsep.join([bare["PYTHONPATH"], *borrowed]), **variables}
        subprocess.run([*pip, "--target", packages, package], env=building, check=True)
        (about,) = packages.glob("headwise-*.dist-info")
        for name in required(metadata.Distribution.at(about), extra):
            link_package(metadata.distribution(name), packages)
        return str(folder / "bin/python")

    return make


def required(package: metadata.Distribution, extra: str = "") -> set[str]:
    """Names of the packages that a package requires, directly or not."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in package.requires or ()]
    waiting = [each for each in waiting if each.marker is None or each.marker.evaluate({"extra": extra})]
    while waiting:
        requirement = waiting.pop()
        if requirement.name in found:
            continue
        found.add(requirement.name)
        texts = metadata.distribution(requirement.name).requires or ()
        inner = [Requirement(text) for text in texts]
        asked = ("", *requirement.extras)
        waiting += [each for each in inner if not each.marker or any(each.marker.evaluate({"extra": e}) for e in asked)]
    return found


def link_package(package: metadata.Distribution, folder: Path) -> None:
    """Make an installed package importable from another environment."""
    for name in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (folder / name).exists():
            (folder / name).symlink_to(Path(str(package.locate_file(name))))


def best_build() -> str:
    """The build for this processor according to Linux; empty if torch should be used."""
    about = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    needed = {
        "avx512": ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"],
        "avxvnni": ["avx_vnni"],
        "avx2": ["avx2"],
        "i8mm": ["asimddp", "i8mm"],
        "dotprod": ["asimddp"],
        "neon": ["asimd"],
    }
    return next((name for name in BUILDS[platform.machine()] if name in needed and {*needed[name]} <= {*about}), "")


@pytest.fixture(scope="module")
def installed(install: Callable[..., str]) -> str:
    """An environment with the wheel for this machine."""
    if not HERE:
        pytest.skip("no wheel for this machine: make wheels")
    return install(HERE[-1])


def translated(python: list[str], model: Path, environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """Three translated lines and the error output of a program."""
    ran = subprocess.run([*python, "-c", TRANSLATE, str(model)], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines(), ran.stderr.splitlines()


def test_an_installed_wheel_translates_without_a_compiler(installed: str, model: Path, bare: dict[str, str]) -> None:
    """With the best build, without torch, and with the text of every other build."""
    (about, text, torch), complaints = translated([installed], model, bare)
    best, compiler, folder = about.split(maxsplit=2)
    assert (best, compiler, torch, complaints) == (best_build(), "None", "False", [])
    assert folder.startswith(installed.split("/bin/")[0]), "another Headwise than the installed one"
    for build in ("avx2", ANYWHERE):
        assert translated([installed], model, {**bare, "HEADWISE_NATIVE": build})[0][1:] == [text, "False"]


def test_an_installed_wheel_without_torch(installed: str, model: Path, bare: dict[str, str], tmp_path: Path) -> None:
    """Commands for translations work with the required packages alone; training names the package that it needs."""
    texts = {name: tmp_path / name for name in ("a.en", "a.de")}
    for path in texts.values():
        path.write_text("the cat\na dog sat\n")
    pairs = ["--source", str(texts["a.en"]), "--target", str(texts["a.de"])]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [installed, "-m", "headwise", *arguments]
        return subprocess.run(
            command, input="the cat\n", cwd=tmp_path, env=bare, capture_output=True, text=True, check=False
        )

    commands = {
        "translate": ["translate", str(model)],
        "score": ["score", str(model), *pairs],
        "align": ["align", str(model), *pairs],
        "evaluate": ["evaluate", str(model), "--source", pairs[1], "--reference", pairs[3]],
        "check-corpus": ["check-corpus", *map(str, texts.values())],
        "info": ["info", str(model)],
        "inspect": ["inspect", str(model), "the cat"],
    }
    for name, arguments in commands.items():
        ran = run(*arguments)
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), f"{name}: {ran.stderr}"
        assert ran.stdout or (tmp_path / "attention.html").is_file(), name
    failed = run("train", "--train", *map(str, texts.values()), "--valid", "50%", "--out", str(tmp_path / "run"))
    assert (failed.returncode, failed.stderr.count("\n")) == (2, 1)
    assert 'pip install "headwise[train]"' in failed.stderr


@pytest.fixture(scope="module")
def on_arm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Callable[[str], list[str]], dict[str, str]]:
    """A call of Python on an emulated ARM processor with the wheel installed, and its environment."""
    wheels = [wheel for wheel in WHEELS if tag(wheel) == "manylinux_2_17_aarch64"]
    if not (wheels and (AARCH64 / "complete").is_file() and shutil.which("qemu-aarch64-static")):
        pytest.skip("no wheel for 64-bit ARM, or no Python for it: make wheels")
    folder = tmp_path_factory.mktemp("arm")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--only-binary=:all:"]
    subprocess.run([*pip, "--platform", "manylinux_2_17_aarch64", "--target", folder, wheels[-1]], check=True)
    emulator, python = ["qemu-aarch64-static", "-L", str(AARCH64 / "root")], str(AARCH64 / "root/usr/bin/python3")
    paths = os.pathsep.join(map(str, (folder, AARCH64 / "packages")))
    alone = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return (lambda processor: [*emulator, "-cpu", processor, python]), alone


@pytest.mark.parametrize(
    ("processor", "usable"),
    [("max", ["i8mm", "dotprod", "neon"]), ("neoverse-n1", ["dotprod", "neon"]), ("cortex-a72", ["neon"])],
)
def test_an_installed_wheel_selects_its_build_on_arm(processor: str, usable: list[str], on_arm: Any) -> None:
    call, environment = on_arm
    code = "from headwise.runtime.native import library as c; print(c.instructions(), *c.usable_builds())"
    ran = subprocess.run([*call(processor), "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
    assert (ran.stderr, ran.stdout.split()) == ("", [usable[0], *usable, ANYWHERE])


def test_an_installed_wheel_translates_on_arm(on_arm: Any, model: Path) -> None:
    """The text of this machine, without torch."""
    call, environment = on_arm
    (about, text, torch), complaints = translated(call("neoverse-n1"), model, environment)
    assert about.startswith("dotprod ") and (torch, complaints) == ("False", [])
    assert text == load(model).translate(["the cat"], beam_size=2)[0].text


@pytest.mark.skipif(not shutil.which("qemu-x86_64-static"), reason="needs qemu-x86_64-static")
def test_a_processor_of_2008(installed: str, model: Path, bare: dict[str, str]) -> None:
    """A processor without AVX: plain C on request, and never an illegal instruction."""
    emulated = [shutil.which("qemu-x86_64-static") or "", "-cpu", "Nehalem", installed]
    code = "from headwise.runtime.native import library as c; print(c.usable_builds())"
    ran = subprocess.run([*emulated, "-c", code], env=bare, capture_output=True, text=True)
    assert (ran.stderr, ran.stdout) == ("", f"['{ANYWHERE}']\n")
    (about, text, _), _ = translated(emulated, model, {**bare, "HEADWISE_NATIVE": ANYWHERE})
    assert about.startswith(ANYWHERE) and text == translated([installed], model, bare)[0][1]


@pytest.mark.skipif(
    not ((ROOT / ".git").exists() and shutil.which("git") and shutil.which("gcc")),
    reason="needs git, the repository and gcc",
)
def test_the_line_of_the_readme_installs_from_git(
    install: Callable[..., str], model: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    """The newest commit of this repository, compiled by pip, translates without torch."""
    pytest.importorskip("hatchling")
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nexec gcc "$@" -O0\n', encoding="utf-8")  # a tenth of the time, the same results
    compiler.chmod(0o755)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r'^pip install "(headwise @ git\+)https:[^"]*"', readme, re.MULTILINE)
    from_here = f"{line}file://localhost{ROOT}"  # pip wants a host
    python = install(from_here, PATH=os.environ["PATH"], CC=str(compiler))
    ran = subprocess.run([python, "-m", "headwise", "--version"], env=bare, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"headwise \d+\.\d+\S*\n", ran.stdout)
    (about, text, torch), complaints = translated([python], model, bare)
    assert (about.split()[0], torch, complaints) == (best_build(), "False", [])
    assert text == load(model).translate(["the cat"], beam_size=2)[0].text


def test_the_sources_install_without_a_compiler(
    install: Callable[..., str], model: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    """Complete, with torch instead of the library, and with one line about it."""
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    python = install(next(tmp_path.glob("*.tar.gz")), "train")
    (about, text, torch), _ = translated([python], model, bare)
    assert about.startswith("none None") and torch == "True"
    assert text == load(model).translate(["the cat"], beam_size=2)[0].text
    call = [python, "-m", "headwise", "translate", str(model)]
    ran = subprocess.run(call, input="the cat\na dog\n", env=bare, capture_output=True, text=True, check=True)
    assert len(ran.stdout.splitlines()) == 2
    (complaint,) = ran.stderr.splitlines()
    assert re.match(r"headwise: warning: .* is missing; .* more slowly: .*/native/build\.py", complaint)
