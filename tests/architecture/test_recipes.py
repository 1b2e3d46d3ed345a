"""Every recipe is in the documentation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.stem for path in (ROOT / "src" / "headwise" / "recipes").glob("*.toml"))


@pytest.mark.parametrize("recipe", [name for name in RECIPES if not name.startswith("tune") and name != "demo"])
def test_a_recipe_that_trains_from_scratch_is_in_a_guide(recipe: str) -> None:
    guides = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/how-to").glob("*.md")))
    assert re.search(rf"`{recipe}`|--recipe {recipe}\b(?!-)", guides)


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name.startswith("tune")])
def test_a_recipe_for_fine_tuning_is_in_the_documentation(recipe: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"recipes/{recipe}.toml" in page.read_text(encoding="utf-8") for page in pages)
