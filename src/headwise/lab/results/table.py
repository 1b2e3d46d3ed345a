"""Scores of systems on test sets: mean and standard deviation over runs, and significance of differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from jaxtyping import Float

from headwise.errors import unknown
from headwise.evaluate.measure import Measure
from headwise.evaluate.significance import compare, resampled
from headwise.lab.results.hypotheses import EvaluationSet
from headwise.lab.results.runs import Group


@dataclass(frozen=True)
class ResultsColumn:
    """A metric on a test set, and the signature that reproduces it ("" for a figure of a training log)."""

    test: str
    metric: str
    signature: str = ""
    digits: int = 2  # shown


@dataclass(frozen=True)
class Cell:
    """A system under one metric."""

    scores: Sequence[float]  # one per run
    p_value: float | None = None  # of the difference to the baseline
    difference: float = 0.0  # mean - mean of the baseline

    @property
    def mean(self) -> float:
        return fmean(self.scores)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the runs; None for a single one."""
        return stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Row:
    """A system; a cell is None if it has no such figure."""

    name: str
    runs: int
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class ResultsTable:
    """Systems in rows, with a cell for each of the columns."""

    columns: Sequence[ResultsColumn]
    rows: Sequence[Row]
    baseline: str = ""
    notes: Sequence[str] = ()  # how the figures were computed


@dataclass(frozen=True)
class _Figures:
    """A system on one test set under one metric: the score of each run, and its bootstrap scores."""

    scores: Sequence[float]
    samples: Sequence[Float[np.ndarray, " samples"]]


def score_table(
    groups: Sequence[Group],
    tests: Sequence[EvaluationSet],
    hypotheses: Mapping[str, Mapping[str, Sequence[str]]],
    measures: Sequence[Measure],
    baseline: str = "",
    notes: Sequence[str] = (),
) -> ResultsTable:
    """Every system on every test set under every metric.

    `hypotheses` are lines by the names of run and test set. With a `baseline` the other systems are compared with it by
    paired bootstrap over sentences and runs (`evaluate.significance.compare`).
    """
    columns: list[ResultsColumn] = []
    cells: dict[str, list[Cell | None]] = {group.name: [] for group in groups}
    for test in tests:
        for measure in measures:
            figures = {group.name: _figures(group, test, hypotheses, measure, bool(baseline)) for group in groups}
            columns.append(ResultsColumn(test.name, measure.name, measure.signature()))
            for name, own in figures.items():
                cells[name].append(_cell(own, figures.get(baseline) if name != baseline else None))
    rows = [Row(group.name, len(group.runs), cells[group.name]) for group in groups]
    return ResultsTable(columns, rows, baseline, notes)


def check_baseline(name: str, groups: Sequence[Group]) -> None:
    """`UserError` if there is no such system; called before anything is translated."""
    names = [group.name for group in groups]
    if name and name not in names:
        raise unknown("baseline", name, names)


def _figures(
    group: Group,
    test: EvaluationSet,
    hypotheses: Mapping[str, Mapping[str, Sequence[str]]],
    measure: Measure,
    resample: bool,
) -> _Figures:
    statistics = [
        measure.statistics(hypotheses[run.name][test.name], test.references, test.sources) for run in group.runs
    ]
    scores = [measure.score(own).score for own in statistics]
    return _Figures(scores, [resampled(measure, own) for own in statistics] if resample else [])


def _cell(own: _Figures, baseline: _Figures | None) -> Cell:
    if baseline is None:
        return Cell(own.scores)
    comparison = compare("", "", (own.scores, baseline.scores), (own.samples, baseline.samples))
    return Cell(own.scores, comparison.p_value, comparison.a.score - comparison.b.score)
