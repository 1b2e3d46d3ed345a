"""The scripts of `headwise completion`, run by the shells that are installed."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from headwise import cli
from headwise.cli.commands import completion

LINES = [  # what is typed, what it may become in a folder with a file `text.txt` and a folder `runs`
    ("tr", {"train", "translate", "transcribe"}),
    ("info r", {"runs"}),
    ("translate --beam", {"--beam-size"}),
    ("translate runs te", {"text.txt"}),
    ("translate runs --keep te", {"text.txt"}),
    ("translate runs --compute in", {"int4", "int8"}),
    ("train --train text.txt te", {"text.txt"}),
    ("prune runs --out r", {"runs"}),
    ("completion f", {"fish"}),
]
BASH = """source ./headwise.bash
COMP_WORDS=({line}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_headwise headwise "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"
complete -p headwise && printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts, and something to complete."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in completion.SHELLS:
        with pytest.MonkeyPatch.context() as patch, (folder / f"headwise.{shell}").open("w") as file:
            patch.setattr("sys.stdout", file)
            assert cli.main(["completion", shell]) == 0
    (folder / "text.txt").touch()
    (folder / "runs").mkdir()
    return folder


def run(shell: str, program: str, folder: Path) -> str:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    ran = subprocess.run([shell, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes(scripts: Path, line: str, expected: set[str]) -> None:
    first, *found = run("bash", BASH.format(line=f"headwise {line}"), scripts).splitlines()
    assert first.endswith("-F _shtab_headwise headwise")
    assert {*found} == expected


@pytest.mark.parametrize(("line", "expected"), [line for line in LINES if line[0] != "train --train text.txt te"])
def test_fish_completes(scripts: Path, line: str, expected: set[str]) -> None:
    found = run("fish", f"source ./headwise.fish; complete -C {shlex.quote(f'headwise {line}')}", scripts)
    assert {word.split("\t")[0].rstrip("/") for word in found.splitlines()} == expected


def test_zsh_reads_the_script(scripts: Path) -> None:
    run("zsh", "zsh -n headwise.zsh", scripts)
    text = (scripts / "headwise.zsh").read_text(encoding="utf-8")
    assert text.startswith("#compdef headwise\n")
    assert all(f"\n        {name}) _arguments " in text for name in cli.BY_NAME)


def test_commands_that_lack_a_library_are_completed_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(parser: cli.Parser, name: str) -> None:
        if name == "train":
            raise cli.UserError("headwise train needs PyTorch")
        cli.add_command(parser, name)

    monkeypatch.setattr(completion, "add_command", add)
    assert cli.main(["completion", "bash"]) == 0
    out = capsys.readouterr().out
    assert "_shtab_headwise_train_option_strings=(-h --help)\n" in out
    assert "--beam-size" in out
