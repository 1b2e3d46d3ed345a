"""The parts of a claim: a sentence, conditions, a measurement, figures, and the statements that it consists of.

A condition is a frozen dataclass of plain values. With a seed it determines a measurement, so its values are also the
key under which the result is stored. Figures are described here and drawn in `evaluate/pages/figures.py`.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwise.evaluate.pages.figures import Figure, Series
from headwise.evaluate.pages.statistics import PowerLaw, power_law, seed_range
from headwise.lab.study.statement import Looks, NoRows, Result, Row, Statement, judge

Scale = Literal["quick", "full"]
ONCE, SEEDS = Looks(1, 1), Looks(3, 6)  # of counts, which have no chance, and of trainings


@dataclass(frozen=True)
class Plan:
    """Settings of the study for every claim. `quick` only shows that everything runs."""

    scale: Scale = "full"
    device: str = "cpu"
    data: Path | None = None  # folder with multi30k/ and lm/, as docs/concepts/study.md describes it

    def pick(self, quick: Any, full: Any) -> Any:
        """The value for this plan's scale."""
        return quick if self.scale == "quick" else full

    def file(self, name: str) -> str:
        """The path of a file of the data folder; empty if it is not there or the study is quick."""
        there = self.scale == "full" and self.data and (self.data / name).is_file()
        return str(self.data / name) if self.data and there else ""


@dataclass(frozen=True)
class Claim:
    """One claim with everything needed to judge it; `claims.py` lists them.

    Claims with the same `measure` share the results of equal conditions.
    """

    name: str
    sentence: str  # the claim as usually stated
    source: str
    method: str  # for readers who know no code
    conditions: Callable[[Plan], Sequence[Any]]  # frozen dataclasses; none: the plan lacks what is needed
    measure: Callable[[Any, int], list[Row]]  # a pure function of a condition and a seed, in a module of its kind
    figures: Callable[[Sequence[Row]], list[Figure]]
    statements: Sequence[Statement]
    cost: float  # guess of the seconds of a measurement on one core, until the first has been timed
    looks: Looks = SEEDS
    timed: bool = False  # results depend on the machine, so another machine measures again, and one unit at a time
    needs: str = ""  # what to add when there are no conditions
    view: Callable[[list[Row]], list[Row]] = list  # of the rows that `measure` gives, those that the claim is about

    def looks_at(self, plan: Plan) -> Looks:
        """Two seeds if the study is quick."""
        return plan.pick(Looks(min(2, self.looks.first), min(2, self.looks.first)), self.looks)

    def judge(self, rows: Sequence[Row]) -> list[Result]:
        """Every statement with its verdict."""
        return [judge(statement, rows, self.looks) for statement in self.statements]


def select_rows(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows with these values.

    >>> select_rows([{"a": 1, "b": 2}, {"a": 3, "b": 2}], a=3)
    [{'a': 3, 'b': 2}]
    """
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def column(rows: Sequence[Row], key: str) -> list[float]:
    """One column."""
    return [float(row[key]) for row in rows]


def distinct(rows: Sequence[Row], key: str) -> list[Any]:
    """The different values of a column, in order of appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def series(rows: Sequence[Row], name: str, x: str, y: str) -> Series:
    """The median of `y` over seeds and its range for each `x`, in ascending order."""
    by_x: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        by_x[float(row[x])].append(float(row[y]))
    return Series(name, sorted(by_x), [seed_range(by_x[place]) for place in sorted(by_x)])


def series_by(rows: Sequence[Row], name: str, x: str, y: str) -> list[Series]:
    """A series for every value of the column `name`."""
    return [series(select_rows(rows, **{name: value}), str(value), x, y) for value in distinct(rows, name)]


def mean_of(rows: Sequence[Row], key: str, **wanted: Any) -> float:
    """The mean of a column over the `wanted` rows; `NoRows` if there are none."""
    values = column(select_rows(rows, **wanted), key)
    if not values:
        raise NoRows(f"no rows to take the mean of {key} from")
    return sum(values) / len(values)


def fit_column(rows: Sequence[Row], x: str, y: str) -> PowerLaw:
    """The power law of column `y` over column `x`."""
    return power_law(column(rows, x), column(rows, y))


def growth(rows: Sequence[Row], y: str, x: str = "length", by: str = "network") -> dict[str, PowerLaw]:
    """How column `y` grows with column `x`, for every value of the column `by`."""
    return {name: fit_column(select_rows(rows, **{by: name}), x, y) for name in distinct(rows, by)}
