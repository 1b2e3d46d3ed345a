"""The table of extras in docs/getting-started/installation.md is that of pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOR_CONTRIBUTORS = {"test", "browser", "wheels", "docs", "dev"}


def test_the_table_of_extras_is_complete() -> None:
    page = (ROOT / "docs/getting-started/installation.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", page, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        name: ", ".join(re.match(r"[\w-]+(\[[\w,-]+\])?", package)[0] for package in packages)  # type: ignore[index]
        for name, packages in project["optional-dependencies"].items()
        if name not in FOR_CONTRIBUTORS
    }
    assert rows == extras


def test_the_oldest_python_is_that_of_the_package() -> None:
    page = (ROOT / "docs/getting-started/installation.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in page
