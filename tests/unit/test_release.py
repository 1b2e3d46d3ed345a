"""What a release consists of: one version everywhere, and workflows that are valid and call what exists."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.version import __version__

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
SCRIPTS = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="workflows are not part of the source distribution")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_changelog_and_the_citation_have_the_version_and_its_date() -> None:
    (date,) = re.findall(rf"\A# Changes\n\n## {re.escape(__version__)} \((.*)\)\n", read("CHANGELOG.md"))
    citation = read("CITATION.cff")
    assert re.findall(r"^(?:version|date-released): (.*)$", citation, re.MULTILINE) == [__version__, date]


def test_workflows_call_targets_and_files_that_exist() -> None:
    text = "\n".join(read(str(path.relative_to(ROOT))) for path in WORKFLOWS)
    matrix = re.findall(r"target: \[(.*)\]", text)[0].split(", ")
    targets = {*re.findall(r"\bmake ([\w-]+)", text), *matrix}
    files = re.findall(r"(?:tests|docs|src|\.github)/[\w./-]+\w", text)
    assert {"check", "test", "wheels", "docs", "sentence-model", "sanitize"} <= targets
    assert targets <= set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    assert files and not [name for name in files if not (ROOT / name).exists()]


@pytest.mark.parametrize("linter", [["zizmor", "--offline", "--quiet"], ["actionlint"]], ids=lambda words: words[0])
def test_workflows_are_valid(linter: list[str]) -> None:
    program = shutil.which(linter[0], path=SCRIPTS) or shutil.which(linter[0])
    if not program:
        pytest.skip(f"{linter[0]} is not installed")
    ran = subprocess.run(
        [program, *linter[1:], *map(str, WORKFLOWS)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
