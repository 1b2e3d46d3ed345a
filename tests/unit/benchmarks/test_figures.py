"""Every measured figure of the README is a link to the file of results it comes from, and stands there.

`[1.72](benchmarks/results/FILE.md)` is a figure: the number, as rounded in the README, is looked for in the file, or in
the section of it that `#section` names. A number that looks measured and is no such link fails the test, too; what is
no measurement (sizes of models, versions, settings) is named in `NO_FIGURES`. On the other pages a paragraph may name
its file once, and all its figures have to stand there.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks/results"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

NUMBER = r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w]|[.,]\d)"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?:\.\./)*benchmarks/results/([^)#]+)(?:#([^)]*))?\)")
ANY_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
UNITS = r"(?:MiB|GiB|MB|ms|s|seconds?|minutes|hours|BLEU|chrF|AER|times|%|sentences|words|pairs)"
MEASURED = re.compile(rf"{NUMBER}\s?{UNITS}\b|{NUMBER}%|(?<![\w.])\d+\.\d+(?![\w.])")
NO_FIGURES = re.compile(
    r"\d+(?:\.\d+)? (?:M|million) parameters|, \d+(?:\.\d+)? M\b|Python 3\.\d+|torch 2\.\d+|arXiv:[\d.]+|[12]\d{3}"
    r"|\d[\d,]*\s(?:short )?pairs|dropout 0\.\d"
)
PROCESSOR = re.compile(r"EPYC|Xeon|Intel|AMD", re.IGNORECASE)

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="results are not part of the source distribution")


def figures(page: Path) -> Iterator[tuple[str, str, str]]:
    """The numbers of each figure's link, its file, and the section it names."""
    for text, file, section in LINK.findall(inlined(page.read_text(encoding="utf-8"))):
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
    """Numbers that look measured and are no link to results; code is left out.

    >>> bare("It takes [1.5](benchmarks/results/a.md) s, before 2.5 s; `x=1.5`; 2.6 M parameters; Python 3.11")
    ['2.5 s']
    """
    text = re.sub(r"`[^`]*`", "", ANY_LINK.sub("", inlined(without_code(text))))
    return [match.group(0) for match in MEASURED.finditer(NO_FIGURES.sub("", text))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_figure_stands_in_its_file_of_results(page: Path) -> None:
    wrong = [
        f"{number}: not in {file}{'#' * bool(section)}{section}"
        for number, file, section in figures(page)
        if not holds(section_of((RESULTS / file).read_text(encoding="utf-8"), section), number)
    ]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_file_names_the_processor(page: Path) -> None:
    files = {file for _, file, _ in figures(page)}
    silent = [file for file in sorted(files) if not PROCESSOR.search((RESULTS / file).read_text(encoding="utf-8"))]
    assert not silent


def test_the_readme_has_no_figure_without_a_file() -> None:
    assert not bare((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_of_a_paragraph_stand_in_the_files_that_it_names(page: Path) -> None:
    wrong = []
    for paragraph in re.split(r"\n\n+", without_code(page.read_text(encoding="utf-8"))):
        files = [file for _, file, _ in LINK.findall(paragraph) if file.endswith(".md")]
        texts = [(RESULTS / file).read_text(encoding="utf-8") for file in files]
        numbers = [re.findall(NUMBER, figure)[0] for figure in bare(paragraph)] if texts else []
        wrong += [number for number in numbers if not any(holds(text, number) for text in texts)]
    assert not wrong


def test_the_readme_has_figures() -> None:
    assert len(list(figures(ROOT / "README.md"))) > 20
