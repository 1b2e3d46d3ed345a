"""Means, deviations and significance of systems, and the three forms of their table."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import UserError
from headwise.evaluate.bleu import corpus_scores, measures
from headwise.evaluate.significance import paired_bootstrap
from headwise.lab.results.formats import as_csv, latex, markdown
from headwise.lab.results.hypotheses import EvaluationSet
from headwise.lab.results.runs import Group, group_runs
from headwise.lab.results.table import Cell, ResultsColumn, ResultsTable, Row, check_baseline, score_table

REFERENCE = [f"the cat number {n} sat on a mat with the dog ." for n in range(30)]
TEST = EvaluationSet("news", REFERENCE, [REFERENCE])


def worse(every: int) -> list[str]:
    return [line.replace("sat on a mat", "went away") if n % every == 0 else line for n, line in enumerate(REFERENCE)]


@pytest.fixture
def groups(make_run: Any) -> Sequence[Group]:
    runs = [make_run("a-1", seed=1), make_run("a-2", seed=2), make_run("b", d_model=32), make_run("c", d_model=64)]
    return group_runs(runs, {})


HYPOTHESES = {name: {"news": worse(every)} for name, every in {"a-1": 2, "a-2": 3, "b": 5, "c": 2}.items()}


def bleu(name: str) -> float:
    return corpus_scores(HYPOTHESES[name]["news"], REFERENCE, ["BLEU"])["BLEU"].score


def test_mean_and_deviation_over_runs(groups: Sequence[Group]) -> None:
    table = score_table(groups, [TEST], HYPOTHESES, measures(["BLEU", "TER"]))
    assert [(column.test, column.metric) for column in table.columns] == [("news", "BLEU"), ("news", "TER")]
    assert table.columns[0].signature == corpus_scores(REFERENCE, REFERENCE, ["BLEU"])["BLEU"].signature
    a, b, _ = table.rows
    assert (a.name, a.runs, b.name, b.runs) == ("a", 2, "b", 1)
    assert a.cells[0] is not None and b.cells[0] is not None
    assert a.cells[0].mean == pytest.approx((bleu("a-1") + bleu("a-2")) / 2)
    assert a.cells[0].deviation == pytest.approx(abs(bleu("a-1") - bleu("a-2")) / 2**0.5)
    assert (b.cells[0].mean, b.cells[0].deviation, b.cells[0].p_value) == (bleu("b"), None, None)


def test_single_runs_are_compared_by_the_paired_bootstrap(groups: Sequence[Group]) -> None:
    table = score_table(groups, [TEST], HYPOTHESES, measures(["BLEU"]), baseline="c")
    cells = {row.name: row.cells[0] for row in table.rows}
    expected = paired_bootstrap(worse(5), worse(2), REFERENCE, ["BLEU"])["BLEU"].p_value
    assert cells["b"] and cells["a"] and cells["c"]
    assert cells["b"].p_value == expected < 0.05
    assert cells["b"].difference == bleu("b") - bleu("c")
    assert cells["c"].p_value is None
    # That one of two runs is no better than the baseline is a doubt that sentences alone do not show.
    assert cells["a"].p_value is not None
    assert cells["a"].p_value > paired_bootstrap(worse(3), worse(2), REFERENCE, ["BLEU"])["BLEU"].p_value


def test_an_unknown_baseline_is_refused(groups: Sequence[Group]) -> None:
    with pytest.raises(UserError, match=r"'a-1' \(valid: a, b, c\)"):
        check_baseline("a-1", groups)
    check_baseline("a", groups)


TABLE = ResultsTable(
    [ResultsColumn("t_1", "BLEU", "nrefs:1|x"), ResultsColumn("t_1", "chrF++", "nrefs:1|y")],
    [
        Row("base", 3, [Cell([38.0, 39.0, 40.0]), Cell([60.0, 60.0, 60.0])]),
        Row("other", 1, [Cell([40.0], 0.0125, 1.0), None]),
    ],
    baseline="base",
    notes=["beam 4"],
)


def test_markdown_is_aligned_and_says_what_it_means() -> None:
    assert markdown(TABLE).splitlines() == [
        "| model           | runs |                 t_1 BLEU |   t_1 chrF++ |",
        "| --------------- | ---: | -----------------------: | -----------: |",
        "| base (baseline) |    3 |             39.00 ± 1.00 | 60.00 ± 0.00 |",
        "| other           |    1 | 40.00 (+1.00, p = 0.013) |              |",
        "",
        "- BLEU: nrefs:1|x",
        "- chrF++: nrefs:1|y",
        "- mean ± standard deviation over the runs of a model",
        "- difference from base, and p by paired bootstrap: 1,000 samples of sentences and runs, seed 12345",
        "- p is over sentences only for other, with a single run",
        "- with 1 run p is too small: the bootstrap knows no other runs; train at least 5 seeds",
        "- beam 4",
    ]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.booleans())
def test_notes_say_which_p_values_have_too_few_runs(runs: list[int], compared: bool) -> None:
    rows = [Row(f"model-{n}", count, []) for n, count in enumerate(runs)]
    notes = markdown(ResultsTable([], rows, "model-0" if compared else ""))
    single = [row.name for row in rows if row.runs == 1] if compared else []
    expected = f"only for {', '.join(single)}, with" if single else "sentences only"
    assert (expected in notes) == bool(single)
    assert (f"with {min(runs)} run" in notes) == (compared and min(runs) < 5)


def test_latex_escapes_what_it_would_read() -> None:
    lines = latex(TABLE).splitlines()
    assert r"model & runs & t\_1 BLEU & t\_1 chrF++ \\" in lines
    assert r"base (baseline) & 3 & 39.00 $\pm$ 1.00 & 60.00 $\pm$ 0.00 \\" in lines
    assert r"other & 1 & 40.00 (+1.00, $p$ = 0.013) &  \\" in lines
    assert lines[0] == "% BLEU: nrefs:1|x"
    assert lines[-1] == r"\end{tabular}"


def test_csv_has_every_figure_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert [(row["model"], row["metric"], row["runs"]) for row in rows] == [
        ("base", "BLEU", "3"),
        ("base", "chrF++", "3"),
        ("other", "BLEU", "1"),
    ]
    assert (rows[0]["mean"], rows[0]["deviation"], rows[0]["scores"]) == ("39.0", "1.0", "38.0 39.0 40.0")
    assert (rows[2]["p_value"], rows[2]["difference"], rows[2]["baseline"]) == ("0.0125", "1.0", "base")
    assert (rows[2]["signature"], rows[2]["deviation"]) == ("nrefs:1|x", "")
