"""docs/getting-started/installation.md agrees with pyproject.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/getting-started/installation.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_CONTRIBUTORS = {"test", "browser", "wheels", "docs", "dev"}


def test_the_table_has_every_extra() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", PAGE.split("## Extras")[1].split("\n## ")[0], re.MULTILINE)
    extras = sorted(PROJECT["optional-dependencies"].keys() - FOR_CONTRIBUTORS)
    assert sorted(rows) == extras, "add the extra to the page"


def test_the_oldest_python_is_that_of_the_package() -> None:
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} or newer" in PAGE
