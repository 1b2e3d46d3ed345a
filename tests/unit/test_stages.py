"""Stages of continuous integration run unless they passed with the same files (`.ci/stages.py`)."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "stages.py"
STAGES = """
common = ["Makefile"]

[stage.always]
run = "echo always >> ran"

[stage.docs]
run = "echo docs >> ran; ! grep -q wrong docs/*"
paths = ["docs"]

[stage.code]
run = "echo code >> ran"
paths = ["src/*.c", "src/deep"]
"""

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="not part of the source distribution")


class Repository:
    """A small repository with three stages, each of which writes its name into a file that git ignores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "docs/a.md", "src/a.c", "src/a.py", "src/deep/b.py"):
            self.write(name, name)
        self.write(".gitignore", "ran\n*.so\n")
        self.write(".ci/stages.py", SCRIPT.read_text(encoding="utf-8"))
        self.write(".ci/stages.toml", STAGES)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "."], cwd=folder, check=True)

    def write(self, name: str, content: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> list[str]:
        """The stages that ran."""
        (self.folder / "ran").write_text("", encoding="utf-8")
        command = [sys.executable, ".ci/stages.py", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == code, done
        self.out = done.stdout + done.stderr
        return (self.folder / "ran").read_text(encoding="utf-8").split()

    @property
    def recorded(self) -> set[str]:
        return set(json.loads((self.folder / ".ci" / "passed.json").read_text(encoding="utf-8")))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_stage_that_passed_is_skipped(repository: Repository) -> None:
    assert repository.run() == ["always", "docs", "code"]
    assert repository.recorded == {"docs", "code"}
    assert repository.run() == ["always"]
    assert "docs: skipped" in repository.out and "code: skipped" in repository.out


@pytest.mark.parametrize(
    ("name", "ran"),
    [
        ("docs/a.md", ["docs"]),
        ("docs/new/page.md", ["docs"]),  # not tracked yet
        ("src/a.c", ["code"]),
        ("src/deep/b.py", ["code"]),
        ("src/a.py", []),
        ("src/deep/built.so", []),  # git ignores it
        ("Makefile", ["docs", "code"]),
        ("other.txt", []),
    ],
)
def test_a_changed_file_makes_its_stages_run(repository: Repository, name: str, ran: list[str]) -> None:
    repository.run()
    repository.write(name, "changed")
    assert repository.run() == ["always", *ran]
    assert repository.run() == ["always"]


def test_what_else_counts_as_a_change(repository: Repository) -> None:
    repository.run()
    (repository.folder / "docs/a.md").rename(repository.folder / "docs/b.md")
    assert repository.run() == ["always", "docs"]
    repository.write("Makefile", "# a comment\nMakefile")
    assert repository.run() == ["always"]
    (repository.folder / "src/a.c").chmod(0o755)
    assert repository.run() == ["always", "code"]
    repository.write(".ci/stages.toml", STAGES.replace("echo code", "echo  code"))
    assert repository.run() == ["always", "code"]


def test_a_stage_that_fails_loses_its_record(repository: Repository) -> None:
    repository.run()
    repository.write("docs/a.md", "wrong")
    assert repository.run(code=1) == ["always", "docs"]
    assert repository.recorded == {"code"} and "failed: docs" in repository.out
    repository.write("docs/a.md", "docs/a.md")  # as before: what failed runs again
    assert repository.run() == ["always", "docs"]


def test_a_stage_that_changes_its_files_is_not_recorded(repository: Repository) -> None:
    repository.write(".ci/stages.toml", STAGES.replace("echo code", "echo code > src/a.c; echo code"))
    repository.run()
    assert repository.recorded == {"docs"}


def test_a_stage_whose_program_is_missing_is_not_recorded(repository: Repository) -> None:
    needing = STAGES.replace('paths = ["docs"]', 'paths = ["docs"]\nneeds = ["no-such-program", "{}"]')
    repository.write(".ci/stages.toml", needing.format("nor-this-one"))
    assert repository.run("docs") == [] and not (repository.folder / ".ci" / "passed.json").exists()
    assert "cannot run here, it needs no-such-program or nor-this-one" in repository.out
    repository.write(".ci/stages.toml", needing.format("git"))
    assert repository.run("docs") == ["docs"]


def test_everything_runs_on_request(repository: Repository) -> None:
    repository.run()
    assert repository.run("--full") == ["always", "docs", "code"]
    assert repository.run("--full", "docs") == ["docs"]
    assert repository.run("docs") == []


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (STAGES.replace('"docs"]', '"doc"]'), "there is no file in doc"),
        (STAGES.replace('paths = ["docs"]', 'path = ["docs"]'), "stage docs has the keys"),
        (STAGES + "\n[stages.more]\nrun = ''\n", "unknown keys"),
    ],
)
def test_mistakes_are_reported(repository: Repository, stages: str, message: str) -> None:
    repository.write(".ci/stages.toml", stages)
    repository.run(code=1)
    assert message in repository.out and "Traceback" not in repository.out


def test_the_stages_of_this_repository_are_targets_of_make() -> None:
    stages = tomllib.loads((ROOT / ".ci/stages.toml").read_text(encoding="utf-8"))
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for stage in stages["stage"].values():
        assert re.fullmatch(r"(?:\w+=\w+ )?make ([\w-]+).*", stage["run"])[1] in targets, stage  # type: ignore[index]
    done = subprocess.run([sys.executable, SCRIPT, "--hashes"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == sum("paths" in stage for stage in stages["stage"].values())
