"""Every recipe is told of where people look for one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.stem for path in (ROOT / "src" / "headwise" / "recipes").glob("*.toml"))
ROW = re.compile(r"^\| (`[\w-]+`(?: `[\w-]+`)*) \|", re.MULTILINE)


@pytest.mark.parametrize("recipe", [name for name in RECIPES if not name.startswith("tune") and name != "demo"])
def test_a_recipe_that_begins_from_nothing_stands_in_the_readme(recipe: str) -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| recipe | for |")[1].split("\n\n")[0]
    rows = " ".join(ROW.findall(table))
    assert f"`{recipe}`" in rows.split()


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name.startswith("tune")])
def test_a_recipe_that_tunes_stands_in_the_documentation(recipe: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"recipes/{recipe}.toml" in page.read_text(encoding="utf-8") for page in pages)
