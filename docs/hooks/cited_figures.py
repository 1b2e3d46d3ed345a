"""Figures on pages, and the files of results they come from.

A page of results cites a figure as `{{ result:FILE.json:KEY:DIGITS }}`: the value is looked up in the file. Any page
may link a figure to its file instead, `[1.72](../../benchmarks/results/FILE.md#section)`: the file must contain it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MARKER = re.compile(r"\{\{\s*result:([^:}]+):([^:}]+?)(?::(\d))?\s*\}\}")
NUMBER = r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w]|[.,]\d)"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?:\.\./)*benchmarks/results/([^)#]+)(?:#([^)]*))?\)")
ANY_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
UNITS = r"(?:MiB|GiB|MB|ms|s|seconds?|minutes|hours|BLEU|chrF|AER|times|%|sentences|words|pairs)"
MEASURED = re.compile(rf"{NUMBER}\s?{UNITS}\b|{NUMBER}%|(?<![\w.])\d+\.\d+(?![\w.])")
NO_FIGURES = re.compile(
    r"\d+(?:\.\d+)? (?:M|million) parameters|, \d+(?:\.\d+)? M\b|Python 3\.\d+|torch 2\.\d+|arXiv:[\d.]+|[12]\d{3}"
    r"|\d[\d,]*\s(?:short )?pairs|dropout 0\.\d"
)


def with_cited(markdown: str, folder: Path = RESULTS) -> str:
    """A page with the value in place of every marker, linked to the page of its file.

    Raises:
        ValueError: the file or the key does not exist, or the value is no number.
    """
    return MARKER.sub(lambda found: _cited(found[1], found[2], int(found[3] or 2), folder), markdown)


def _cited(file: str, key: str, digits: int, folder: Path) -> str:
    value = looked_up(file, key, folder)
    page = file.replace(".json", ".md")
    return f"[{value:,.{digits}f}](../../benchmarks/results/{page if (folder / page).is_file() else file})"


def looked_up(file: str, key: str, folder: Path = RESULTS) -> float:
    """A number of a file of results; `KEY` is a path such as `seconds/ours int8/median`, with positions in lists."""
    if not (folder / file).is_file():
        raise ValueError(f"{file}: no such file of results")
    value = json.loads((folder / file).read_text(encoding="utf-8"))
    for part in key.split("/"):
        value = _entry(value, part, f"{file}: no figure '{key}'")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{file}: '{key}' is not a number")
    return value


def _entry(value: Any, part: str, error: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list) and part == "median":
        return median(value)
    if isinstance(value, list) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    raise ValueError(error)


def figures(markdown: str) -> Iterator[tuple[str, str, str]]:
    """The numbers of each figure's link, its file, and the section it names."""
    for text, file, section in LINK.findall(inlined(markdown)):
        for number in re.findall(NUMBER, text):
            yield number, file, section


def inlined(text: str) -> str:
    """Links by reference as links in place.

    >>> inlined("[1.5][a] s\\n\\n[a]: benchmarks/results/a.md#b")
    '[1.5](benchmarks/results/a.md#b) s\\n\\n'
    """
    targets = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, flags=re.MULTILINE))
    text = re.sub(r"^\[[^\]]+\]: \S+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\[([^\]]+)\]", lambda match: f"[{match[1]}]({targets.get(match[2], '')})", text)


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it.

    >>> slug("base, beam 4: batches of 32")
    'base-beam-4-batches-of-32'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def section_of(text: str, anchor: str) -> str:
    """The part of a page below the heading of this anchor, as far as the next; all of it without an anchor.

    >>> section_of("# One\\n1\\n## Two\\n2\\n### Three\\n3\\n", "two")
    '2\\n'
    """
    if not anchor:
        return text
    parts = re.split(r"^#+ (.*)\n", without_code(text), flags=re.MULTILINE)
    return "".join(body for title, body in zip(parts[1::2], parts[2::2], strict=True) if slug(title) == anchor)


def without_code(text: str) -> str:
    """Without fenced blocks, whose comments look like headings and whose numbers are settings."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def holds(text: str, number: str) -> bool:
    """Whether a text has the number, or one that is rounded to it.

    >>> holds("ours 1,234.56 (1,200-1,300)", "1,235"), holds("1.724", "1.72"), holds("1.7", "1.72")
    (True, True, False)
    """
    digits = len(number.partition(".")[2])
    wanted = float(number.replace(",", ""))
    found = (match.replace(",", "") for match in re.findall(r"\d[\d,]*(?:\.\d+)?", text))
    exact = (n for n in found if n and len(n.partition(".")[2]) >= digits)
    return any(abs(float(n) - wanted) <= 0.5 * 10**-digits + 1e-9 for n in exact)


def bare(text: str) -> list[str]:
    """Numbers that look measured and are neither cited nor linked to results; code is left out.

    >>> bare("It takes [1.5](benchmarks/results/a.md) s, before 2.5 s; `x=1.5`; 2.6 M parameters; Python 3.11")
    ['2.5 s']
    """
    text = re.sub(r"`[^`]*`", "", ANY_LINK.sub("", inlined(MARKER.sub("", without_code(text)))))
    return [match.group(0) for match in MEASURED.finditer(NO_FIGURES.sub("", text))]


def missing(markdown: str, folder: Path = RESULTS) -> list[str]:
    """The linked figures that their file, or the section of it that is named, does not contain."""
    return [
        f"{number}: not in {file}{'#' * bool(section)}{section}"
        for number, file, section in figures(markdown)
        if not (folder / file).is_file() or not holds(_part(folder / file, section), number)
    ]


def _part(file: Path, section: str) -> str:
    return section_of(file.read_text(encoding="utf-8"), section)
