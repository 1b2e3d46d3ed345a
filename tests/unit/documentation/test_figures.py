"""Every measured figure of the documentation comes from a file of results that contains it.

A figure is a link, `[1.72](benchmarks/results/FILE.md)`, or on the pages of results a marker that is looked up
(`docs/hooks/cited_figures.py`). In the README and on the pages of results, a number that looks measured and is neither
fails the test. On the other pages a paragraph may name its file once, and all its figures have to stand there.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks/results"
if not RESULTS.is_dir() or not (ROOT / "docs").is_dir():
    pytest.skip("results are not part of the source distribution", allow_module_level=True)

from cited_figures import (  # noqa: E402
    LINK,
    MARKER,
    NUMBER,
    bare,
    figures,
    holds,
    looked_up,
    missing,
    with_cited,
    without_code,
)
from speed_table import with_speed_table  # noqa: E402

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
WITHOUT_BARE = [ROOT / "README.md", *sorted(ROOT.glob("docs/results/*.md"))]
PROCESSOR = re.compile(r"EPYC|Xeon|Intel|AMD", re.IGNORECASE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_figure_stands_in_its_file_of_results(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_file_names_the_processor(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = {file for _, file, _ in figures(text)} | {file for file, *_ in MARKER.findall(text)}
    silent = [file for file in sorted(files) if not PROCESSOR.search((RESULTS / file).read_text(encoding="utf-8"))]
    assert not silent


@pytest.mark.parametrize("page", WITHOUT_BARE, ids=name)
def test_no_figure_is_without_a_file(page: Path) -> None:
    assert not bare(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES[1:], ids=name)
def test_figures_of_a_paragraph_stand_in_the_files_that_it_names(page: Path) -> None:
    wrong = []
    for paragraph in re.split(r"\n\n+", without_code(page.read_text(encoding="utf-8"))):
        files = [file for _, file, _ in LINK.findall(paragraph) if file.endswith(".md")]
        texts = [(RESULTS / file).read_text(encoding="utf-8") for file in files]
        numbers = [re.findall(NUMBER, figure)[0] for figure in bare(paragraph)] if texts else []
        wrong += [number for number in numbers if not any(holds(text, number) for text in texts)]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_cited_figures_exist(page: Path) -> None:
    assert "result:" not in with_cited(without_code(page.read_text(encoding="utf-8")))


def test_pages_of_results_have_figures() -> None:
    texts = [page.read_text(encoding="utf-8") for page in WITHOUT_BARE[1:]]
    assert sum(len(list(figures(text))) for text in texts) > 20
    assert sum(len(MARKER.findall(text)) for text in texts) > 10


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_text(json.dumps({"times": [1.5, 2.25, 9], "processor": "EPYC"}), encoding="utf-8")
    (tmp_path / "a.md").write_text("# A\n\nAMD EPYC\n\n## Times\n\n2.25 s\n", encoding="utf-8")
    return tmp_path


def test_a_marker_becomes_the_figure_with_a_link(results: Path) -> None:
    page = "{{ result:a.json:times/median }} and {{ result:a.json:times/0:1 }}"
    assert with_cited(page, results) == (
        "[2.25](../../benchmarks/results/a.md) and [1.5](../../benchmarks/results/a.md)"
    )


@pytest.mark.parametrize(
    ("file", "key", "error"),
    [
        ("b.json", "times/0", "no such file"),
        ("a.json", "speed", "no figure 'speed'"),
        ("a.json", "times/3", "no figure 'times/3'"),
        ("a.json", "processor", "not a number"),
    ],
)
def test_a_figure_that_is_not_in_its_file_is_an_error(results: Path, file: str, key: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        looked_up(file, key, results)


def test_linked_figures_that_are_nowhere_are_found(results: Path) -> None:
    target = "benchmarks/results"
    page = f"[2.3]({target}/a.md) [2.25]({target}/a.md#times) [2.4]({target}/a.md) [1]({target}/b.md)"
    assert missing(page, results) == ["2.4: not in a.md", "1: not in b.md"]


def bench(folder: Path, date: str, instructions: str, ours: float) -> None:
    lines = [
        f"# make bench\n\nAMD EPYC, 2 core(s), 2 thread(s), {instructions}, Linux; Python 3.11\n",
        "### base, greedy, batches of 64\n",
        "| contender | sentences/s | ours int8 is faster by | tokens |",
        "| --- | --- | --- | --- |",
        f"| ours int8 | {ours} (1-2) | 1 | 14.0 |",
        "| ctranslate2 int8 | 100.00 (90-110) | 1.25 (1.2-1.3) | 14.0 |\n",
        "### Cold start\n",
        "| contender | seconds until the first translation | peak MiB |",
        "| --- | --- | --- |",
        "| ours int8 | 0.40 (0.3-0.5) | 1,200 |",
        "| ctranslate2 int8 | 0.20 (0.2-0.2) | 900 |",
    ]
    (folder / f"bench_2-core-cpu_{date}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_table_of_speed_has_the_newest_results_of_each_processor(tmp_path: Path) -> None:
    for date, instructions, ours in (
        ("2026-01-03", "AVX2", 50.0),
        ("2026-01-02", "AVX2", 9.0),
        ("2026-01-01", "AVX512", 150.0),
    ):
        bench(tmp_path, date, instructions, ours)
    head, _, *rows = with_speed_table("{{ bench }}", tmp_path).splitlines()
    assert "AVX2, 2026-01-03" in head and "AVX512, 2026-01-01" in head and "2026-01-02" not in head
    found = {row.strip("| ").split(" | ")[0]: row.strip("| ").split(" | ")[1:] for row in rows}
    assert found["greedy, batches of 64, tokens/s"] == ["700", "1,400", "**1.25**", "2,100", "1,400", "**1.25**"]
    assert found["first translation, seconds"][:3] == ["0.40", "0.20", "**0.50**"]
    assert found["first translation, peak memory in MiB"][:3] == ["1,200", "900", "**0.75**"]
    assert set(found["beam 4, peak memory in MiB"]) == {"-"}


def test_the_table_of_speed_is_on_its_page() -> None:
    page = ROOT / "docs/results/speed.md"
    text = with_speed_table(page.read_text(encoding="utf-8"), RESULTS)
    assert text.count("**") > 20 and "bench }}" not in text
