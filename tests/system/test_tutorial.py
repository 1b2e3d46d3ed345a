"""Every chapter of the tutorial: all cells run at small size, and the parts that a chapter must have are there.

Cells run in this process, in an empty folder, which takes seconds; `make docs` runs them in a notebook's kernel
(tests/unit/documentation/test_chapters.py).
"""

import ast
import importlib
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from headwise.lab.tutorial import ALL, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "docs" / "hooks").is_dir():
    pytest.skip("the documentation is not part of the source distribution", allow_module_level=True)
pytest.importorskip("jupytext")
CHAPTERS = sorted((ROOT / "docs/tutorial").glob("[0-9]*-*.md"))
SECTIONS = ("By hand", "The idea", "Run it", "Break it", "Exercises", "Live figure")


@dataclass(frozen=True)
class Cell:
    """A cell with code, and what it did."""

    section: str
    source: str
    alt: str  # description of its pictures
    raises: bool
    hidden: bool  # set-up that the page folds
    value: Any = None  # of its last line
    figures: int = 0
    printed: str = ""


def cells_of(text: str) -> Iterator[Cell]:
    """The cells with code."""
    section = ""
    for cell in importlib.import_module("chapters").notebook_of(text).cells:
        if cell.cell_type == "markdown":
            section = [section, *re.findall(r"^## (.+)$", cell.source, re.MULTILINE)][-1]
        elif cell.cell_type == "code":
            tags = cell.metadata.get("tags", ())
            alt = cell.metadata.get("alt", "")
            yield Cell(section, cell.source, alt, "raises-exception" in tags, "hide-input" in tags)


def run(text: str, name: str) -> list[Cell]:
    """All cells, executed one after the other; `AssertionError` with chapter, cell and error for one that fails."""
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "__main__"}
    ran = []
    pyplot.close("all")
    for number, cell in enumerate(cells_of(text), 1):
        place = f"{name}, cell {number}"
        printed, errors = io.StringIO(), io.StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(errors):
                value = last_value(cell.source, place, names)
        except Exception as error:
            assert cell.raises, f"{place}: {type(error).__name__}: {error}"
            value = error
        else:
            assert not cell.raises, f"{place} should raise an error"
        assert not errors.getvalue(), f"{place} writes to stderr: {errors.getvalue()}"
        ran.append(replace(cell, value=value, figures=len(pyplot.get_fignums()), printed=printed.getvalue()))
        pyplot.close("all")
    return ran


def last_value(source: str, place: str, names: dict[str, Any]) -> Any:
    """Execute a cell and return the value of its last line, as a notebook displays it."""
    body = ast.parse(source, place).body
    shown = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), place, "exec"), names)
    if not isinstance(shown, ast.Expr):
        return None
    value = eval(compile(ast.Expression(shown.value), place, "eval"), names)
    if value is not None and not hasattr(value, "_ipython_display_"):
        show = next(name for name in ("_repr_html_", "_repr_markdown_", "__repr__") if hasattr(value, name))
        displayed = getattr(value, show)()
        assert displayed and " at 0x" not in displayed, f"{place} displays {displayed}"
    return value


def lacking(text: str, ran: list[Cell], number: str) -> list[str]:
    """What a chapter should have and has not."""
    cells = {section: [cell for cell in ran if cell.section == section] for section in SECTIONS}
    titles = [title for title in re.findall(r"^## (.+)$", text, re.MULTILINE) if title in SECTIONS]
    broken = text.partition("## Break it")[2].partition("\n## ")[0]
    checks = re.findall(r'^check\("([\d.]+)", ', "\n".join(cell.source for cell in cells["Exercises"]), re.MULTILINE)
    frames = [cell for cell in cells["Live figure"] if "<iframe" in getattr(cell.value, "_repr_html_", str)()]
    by_hand = cells["By hand"]
    rules = {
        f"a title '# {number}. ...'": re.search(rf"^# {number}\. ", text, re.MULTILINE),
        "a question": re.search(r"^\*\*Question\.\*\* .+\?", text, re.MULTILINE | re.DOTALL),
        f"the sections {', '.join(SECTIONS)}": titles == list(SECTIONS),
        "set-up that is hidden": all(cell.hidden for cell in ran if cell.section == ""),
        "numbers by hand, without the library": by_hand and not any("headwise" in cell.source for cell in by_hand),
        "a picture in 'The idea'": any(cell.figures for cell in cells["The idea"]),
        "code in 'Run it'": cells["Run it"],
        "'**Before you run this:**' in 'Break it'": "**Before you run this:**" in broken.partition("\n```")[0],
        "a chance level, printed in 'Break it'": any("guessing" in cell.printed for cell in cells["Break it"]),
        "'**Expected effect.**' in 'Break it'": "**Expected effect.**" in broken,
        "three checked exercises": checks == [f"{number}.{n}" for n in (1, 2, 3)] and set(checks) <= set(ALL),
        "code of the paper shown with show_source": any(
            re.search(r"^show_source\(", cell.source, re.MULTILINE) for cell in ran
        ),
        "one live figure": len(frames) == 1,
        'alt="..." at every cell with a picture': all(cell.alt for cell in ran if cell.figures),
    }
    return [rule for rule, kept in rules.items() if not kept]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "small")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")


@pytest.mark.few(1)
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_is_complete(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert lacking(text, run(text, path.name), path.name[0]) == []


COMPLETE = """---
title: Nothing
---
# 1. Nothing

**Question.** Why?

```python tags=["hide-input"]
import sys
```

## By hand

```python
print(1 + 1)
```

## The idea

```python alt="an empty picture"
from matplotlib import pyplot
figure, axes = pyplot.subplots()
```

```python
from headwise.lab.tutorial import check, show_source
show_source(check)
```

## Run it

```python
class Page:
    def _repr_html_(self):
        return "<iframe></iframe>"
```

## Break it

**Before you run this:** what is 1 / 0?

```python
print("guessing: 0%")
```

```python tags=["raises-exception"]
1 / 0
```

**Expected effect.** An error.

## Exercises

```python
check("1.1", ...)
```

```python
check("1.2", ...)
```

```python
check("1.3", ...)
```

## Live figure

```python
Page()
```
"""


def test_a_complete_chapter_passes() -> None:
    assert lacking(COMPLETE, run(COMPLETE, "1-nothing.md"), "1") == []


@pytest.mark.parametrize(
    ("part", "other", "lack"),
    [
        ("# 1. Nothing", "# Nothing", "a title '# 1. ...'"),
        ("**Question.** Why?", "Why?", "a question"),
        ("## Run it", "## Something else", "code in 'Run it'"),
        (' tags=["hide-input"]', "", "set-up that is hidden"),
        ("print(1 + 1)", "import headwise", "numbers by hand, without the library"),
        ("**Before you run this:**", "", "'**Before you run this:**' in 'Break it'"),
        ('print("guessing: 0%")', "", "a chance level, printed in 'Break it'"),
        ("figure, axes = pyplot.subplots()", "", "a picture in 'The idea'"),
        ("**Expected effect.** An", "An", "'**Expected effect.**' in 'Break it'"),
        ('check("1.3", ...)', "", "three checked exercises"),
        ("show_source(check)", "", "code of the paper shown with show_source"),
        ("\nPage()", "\n3", "one live figure"),
        (' alt="an empty picture"', "", 'alt="..." at every cell with a picture'),
    ],
)
def test_what_a_chapter_lacks_is_found(part: str, other: str, lack: str) -> None:
    text = COMPLETE.replace(part, other)
    assert lack in lacking(text, run(text, "1-nothing.md"), "1")


@pytest.mark.parametrize(
    ("part", "other", "message"),
    [
        ("show_source(check)", "1 / 0", "1-nothing.md, cell 4: ZeroDivisionError: division by zero"),
        ("1 / 0", "1 / 1", "1-nothing.md, cell 7 should raise an error"),
        ("Page()", "import sys; print('careful', file=sys.stderr)", "cell 11 writes to stderr: careful"),
    ],
)
def test_a_failing_cell_is_named(part: str, other: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        run(COMPLETE.replace(f"\n{part}", f"\n{other}"), "1-nothing.md")
