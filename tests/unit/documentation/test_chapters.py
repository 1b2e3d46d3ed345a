"""The hook that executes chapters of the tutorial in a notebook's kernel and makes pages of them."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
if not (ROOT / "docs" / "hooks").is_dir():
    pytest.skip("the documentation is not part of the source distribution", allow_module_level=True)
pytest.importorskip("nbclient")

CHAPTER = """---
title: Small
---
# 1. Small

See [the study](../concepts/study.md#a) and [the code](../../src/headwise/errors.py).

```python tags=["hide-input"]
import os

print("set up")
```

```python
print("one")
print("two ```")
3
```

```python tags=["raises-exception"]
1 / 0
```

```python
class Page:
    def _repr_html_(self):
        return "<b>shown</b>"

    def _repr_png_(self):
        return b"picture"
Page()
```

```python alt="A \\"quoted\\" picture"
del Page._repr_html_
Page()
```

```python
from headwise.lab.tutorial import settings, show_source
show_source(settings)
```

```python
from headwise.lab.tutorial import check
check("1.1", ...)
```
"""


@pytest.fixture
def chapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook with a cache of its own."""
    hook = importlib.import_module("chapters")
    monkeypatch.setattr(hook, "CACHE", tmp_path / "cache")
    return hook


@pytest.fixture
def chapter(tmp_path: Path) -> Path:
    path = tmp_path / "1-small.md"
    path.write_text(CHAPTER, encoding="utf-8")
    return path


# The kernel's process and its sockets are closed by garbage collection.
quiet = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::RuntimeWarning")


@quiet
def test_a_chapter_becomes_a_page_and_a_notebook(chapters: Any, chapter: Path) -> None:
    notebook = chapters.executed(chapter)
    page = chapters.page_of(notebook, "1-small")
    parts = [
        "# 1. Small\n",
        "[Download this chapter as a notebook](1-small.ipynb){ download }",
        '??? note "Set-up"\n\n    ```python\n    import os\n\n    print("set up")\n    ```\n\n',
        "```{ .text .output }\nset up\n```",
        "````{ .text .output }\none\ntwo ```\n````",
        "```{ .text .output }\n3\n```",
        "```{ .text .output }\nZeroDivisionError: division by zero\n```",
        '<div class="display" data-display="0"></div>',
        "![A &quot;quoted&quot; picture](1-small-1.png)",
        "```python\n# headwise/lab/tutorial/__init__.py, line ",
        "```{ .text .output }\nExercise 1.1: no answer yet. Replace ... by your answer.\n```\n",
    ]
    places = [page.markdown.index(part) for part in parts]
    assert places == sorted(places) and "title: Small" not in page.markdown
    assert page.markdown.endswith(parts[-1])  # the value of `check` is not displayed
    assert page.pictures == {"1-small-1.png": b"picture"} and page.displays == ["<b>shown</b>"]
    saved = json.loads(chapters.download(notebook, "docs/tutorial/1-small.md"))
    text = "".join(saved["cells"][0]["source"])
    assert saved["cells"][1]["metadata"]["jupyter"] == {"source_hidden": True}
    assert "/concepts/study/#a)" in text and "/source/src/headwise/errors.py/)" in text and "](.." not in text


def outputs(calls: list[str]) -> Callable[[Any, str], None]:
    """An execution that notes the name of the notebook."""
    return lambda notebook, name: calls.append(name)


def test_a_chapter_is_executed_again_when_something_changes(
    chapters: Any, chapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.delenv(chapters.VARIABLE, raising=False)
    monkeypatch.setattr(chapters, "PACKAGE", tmp_path / "package")
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    for change in (
        lambda: None,
        lambda: source.write_text("x = 1", encoding="utf-8"),
        lambda: chapter.write_text(CHAPTER.replace("one", "three"), encoding="utf-8"),
        lambda: monkeypatch.setenv(chapters.VARIABLE, "small"),
    ):
        change()
        for _ in range(2):
            chapters.executed(chapter, outputs(calls))
    assert calls == ["1-small.md"] * 4
    assert len(list(chapters.CACHE.iterdir())) == 2  # one for each size


@pytest.mark.thorough
@quiet
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("# why\nraise ValueError('no x')", r"1-small.md, cell 2 \(# why\): ValueError: no x"),
        ("import os\nos._exit(1)", "1-small.md: Kernel died"),
    ],
)
def test_a_failing_cell_is_named_and_not_kept(chapters: Any, chapter: Path, code: str, message: str) -> None:
    chapter.write_text(f"# 1\n\n```python\nx = 1\n```\n\n```python\n{code}\n```\n", encoding="utf-8")
    with pytest.raises(chapters.CellFailed, match=message):
        chapters.executed(chapter)
    assert not chapters.CACHE.exists()
