"""Files that the pages on the source code name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["docs/project/reading-order.md", "docs/project/structure.md", "CONTRIBUTING.md"]
FILE = re.compile(r"`(?:python )?([\w./]+/[\w.]+\.(?:py|c|h|toml))")


def named_files(text: str) -> set[str]:
    """The paths in code spans.

    >>> sorted(named_files("`core/layers.py`, `core/batches.py`: `Batch`, `python tests/a.py`, `config.json`"))
    ['core/batches.py', 'core/layers.py', 'tests/a.py']
    """
    return set(FILE.findall(text))


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page: str) -> None:
    text = ROOT / page
    if not text.is_file():
        pytest.skip("pages are not part of the source distribution")
    named = named_files(text.read_text(encoding="utf-8"))
    assert len(named) > 10
    assert [
        file for file in sorted(named) if not any((ROOT / top / file).is_file() for top in ("", "src/headwise"))
    ] == []
