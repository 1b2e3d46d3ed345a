"""Size of a new installation, time to the first translation, and peak memory, beside CTranslate2 and Argos Translate.

    python benchmarks/installation.py MODEL --source FILE [--only NAME ...] [--turns N] [--cores 0]

pip installs every contender into an environment of its own, from the package index. All translate the first line of
FILE with the same weights in 8-bit integers, greedily and with one thread, each in a new process. Their outputs must be
equal. `pack` and `export --to ctranslate2` prepare the weights beforehand.

Sizes are those of the installed packages, without pip. CTranslate2 has no tokenizer; programs that use it install one,
here `tokenizers`. Argos Translate gets the same tokenizer, and no sentence splitter, because it would download one.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from decoding import PEAK
from turns import spread, take_turns

from headwise.cli import main as headwise_command

CTRANSLATE2 = "ctranslate2==4.8.5"
ENVIRONMENTS = {  # what pip installs
    "headwise": [str(machine.ROOT)],
    "headwise[serve]": [f"{machine.ROOT}[serve]"],
    "headwise[train]": [f"{machine.ROOT}[train]"],
    "ctranslate2": [CTRANSLATE2],
    "ctranslate2 and tokenizers": [CTRANSLATE2, "tokenizers"],
    "argostranslate": ["argostranslate==1.11.0", "torch==2.13.0"],  # torch: the same build as in headwise[train]
}
READ = "import sys; folder, line = sys.argv[1:]; "
HEADWISE = READ + (
    "import headwise; model = headwise.load(folder + '/packed', device='cpu'); "
    "print(model.translate([line], beam_size=1, compute='int8')[0].text)"
)
TOKENIZER = "from tokenizers import Tokenizer; tokens = Tokenizer.from_file(folder + '/ctranslate2/tokenizer.json'); "
WRITE = "tokens.decode([tokens.token_to_id(token) for token in found])"
PROGRAMS = {
    "headwise": HEADWISE,
    "headwise[train]": HEADWISE,
    "ctranslate2 and tokenizers": READ
    + TOKENIZER
    + "import ctranslate2; model = ctranslate2.Translator(folder + '/ctranslate2', compute_type='int8', "
    "intra_threads=1); source = tokens.encode(line).tokens + ['</s>']; "
    f"found = model.translate_batch([source], beam_size=1)[0].hypotheses[0]; print({WRITE})",
    "argostranslate": READ
    + "sys.path.insert(0, folder + '/tokenizers'); "
    + TOKENIZER
    + f"""
from argostranslate import translate
class Pieces:
    encode = staticmethod(lambda text: tokens.encode(text).tokens + ["</s>"])
    decode = staticmethod(lambda found: {WRITE})
class Whole:
    split_sentences = staticmethod(lambda text: [text])
(en, de) = sorted(translate.get_installed_languages(), key=lambda language: language.code != "en")
model = en.get_translation(de)
while hasattr(model, "underlying"):
    model = model.underlying
model.pkg.tokenizer, model.sentencizer = Pieces, Whole
print(model.hypotheses(line, 1)[0].value)""",
}


@dataclass(frozen=True)
class Installed:
    """An environment after installation; bytes are those of files."""

    python: Path
    packages: int
    size: int
    byte_code: int  # part of `size`, in __pycache__


def main() -> None:
    """Install, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a translation model trained by Headwise")
    parser.add_argument("--source", type=Path, required=True, help="text; its first line is translated")
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, default=machine.pick([*ENVIRONMENTS], ["headwise"]))
    parser.add_argument(
        "--environments", type=Path, help="keep the environments in this folder, and use those that exist"
    )
    parser.add_argument("--turns", type=int, default=machine.pick(9, 2))
    machine.add_machine_options(parser)
    options = parser.parse_args()
    about = machine.description(machine.prepare(options))
    line = options.source.read_text(encoding="utf-8").splitlines()[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare_model(options.model, folder)
        there = options.environments or folder
        installed = {name: install(ENVIRONMENTS[name], there / name) for name in options.only}
        names = [name for name in installed if name in PROGRAMS]
        if "argostranslate" in names:
            pip(installed["argostranslate"].python, "--target", str(folder / "tokenizers"), "tokenizers")
        peaks: dict[str, list[int]] = {name: [] for name in names}
        outputs = {}

        def run(name: str, turn: int) -> float:
            seconds, peak, outputs[name] = first_translation(installed[name].python, PROGRAMS[name], folder, line)
            peaks[name] += [peak] if turn >= 0 else []
            return seconds

        seconds = take_turns({name: lambda turn, name=name: run(name, turn) for name in names}, options.turns, 1)
    if len(set(outputs.values())) != 1:
        raise SystemExit(f"the outputs differ: {outputs}")
    write(about, installed, seconds, peaks)


def prepare_model(model: Path, folder: Path) -> None:
    """The packed model, and the same weights as a CTranslate2 model and as a package of Argos Translate."""
    shutil.copytree(model, folder / "packed")
    commands = [["pack", str(folder / "packed"), "--compute", "int8"]]
    if shutil.which("ct2-transformers-converter", path=sysconfig.get_path("scripts")):
        there = str(folder / "ctranslate2")
        commands.append(["export", str(model), there, "--to", "ctranslate2", "--compute", "int8"])
    for command in commands:
        if headwise_command(command):
            raise SystemExit(f"headwise {' '.join(command)} failed")
    package = folder / "packages/translate-en_de"
    (package / "stanza").mkdir(parents=True)
    (package / "model").symlink_to(folder / "ctranslate2")
    about = {"from_code": "en", "to_code": "de", "from_name": "English", "to_name": "German", "package_version": "1.0"}
    (package / "metadata.json").write_text(json.dumps(about | {"argos_version": "1.9", "target_prefix": ""}))


def install(packages: list[str], folder: Path) -> Installed:
    """An environment with these packages, new unless the folder exists."""
    python = folder / "bin/python"
    if not folder.exists():
        print(f"Installing {' '.join(packages)} ...", file=sys.stderr, flush=True)
        venv.create(folder)
        pip(python, *packages)
    site = next(folder.glob("lib/python*/site-packages"))
    byte_code = sum(size_of(cache) for cache in site.rglob("__pycache__"))
    return Installed(python, len([*site.glob("*.dist-info")]), size_of(site), byte_code)


def pip(python: Path, *packages: str) -> None:
    """Install with the pip of this environment and our constraints."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--disable-pip-version-check"]
    ours = any(str(machine.ROOT) in package for package in packages)
    subprocess.run([*command, *(["-c", machine.ROOT / "constraints.txt"] if ours else []), *packages], check=True)


def size_of(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def first_translation(python: Path, program: str, folder: Path, line: str) -> tuple[float, int, str]:
    """Seconds and peak bytes of a process that translates a line and ends, and the translation."""
    alone = {"OMP_NUM_THREADS": "1", "ARGOS_PACKAGES_DIR": str(folder / "packages"), "ARGOS_COMPUTE_TYPE": "int8"}
    alone |= {"ARGOS_INTRA_THREADS": "1", "ARGOS_BEAM_SIZE": "1", "HOME": str(folder)}
    started = machine.children_now()
    command = [python, "-c", program + PEAK, folder, line]
    ran = subprocess.run(command, env=alone, stdout=subprocess.PIPE, text=True, check=True)
    seconds = machine.children_now() - started
    output, _, peak = ran.stdout.rpartition("VmHWM:")
    return seconds, 1024 * int(peak.split()[0]), output


def write(
    about: dict[str, Any],
    installed: dict[str, Installed],
    seconds: dict[str, list[float]],
    peaks: dict[str, list[int]],
) -> None:
    """The table, printed and as a results file."""
    rows = []
    for name, found in installed.items():
        measured = (
            [spread(seconds[name]), f"{statistics.median(peaks[name]) / 1e6:.0f}"] if name in seconds else ["-"] * 2
        )
        sizes = [f"{size / 1e6:.0f}" for size in (found.size, found.size - found.byte_code)]
        rows.append([f"`{name}`", found.packages, *sizes, *measured])
    header = ["installed", "packages", "MB", "MB without byte code", "seconds to the first translation", "peak MB"]
    table = machine.table(header, rows)
    print(table)
    data = {
        "installed": {
            name: {"packages": f.packages, "bytes": f.size, "byte_code": f.byte_code} for name, f in installed.items()
        },
        "seconds": seconds,
        "peak_bytes": peaks,
    }
    machine.write_result(
        machine.result_path("installation"), "Installation and first translation", about, [table], data
    )


if __name__ == "__main__":
    main()
