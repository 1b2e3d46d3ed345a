"""The README is one page, and its links lead to files of the repository."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"


def test_the_readme_is_one_page() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)|^\[[\w-]+\]: ([^#\s]+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert not [target for pair in links for target in pair if target and not (ROOT / target).exists()]
