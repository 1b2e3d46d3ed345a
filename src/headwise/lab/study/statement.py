"""A statement: one effect that is measured, the threshold that decides, and the verdict that follows from both.

A verdict looks only at the interval of the effect: the statement is supported if the whole interval lies between
`above` and `below`, refuted if all of it lies outside, and undecided otherwise.

Seeds are added while a statement is undecided, so its interval is looked at several times. Each look spends a part of
the permitted error, in proportion to the seeds (Lan and DeMets 1983, doi:10.1093/biomet/70.3.659); the parts add up to
it, so that all intervals of a statement together hold with the stated probability. The primary statements share one
error (Bonferroni); the others have one each.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headwise.evaluate.pages.statistics import LEVEL, Estimate, mean_interval

Row = dict[str, Any]  # numbers and names of one measured point
Verdict = Literal["supported", "refuted", "undecided", "not comparable", "not measured yet"]
VERDICTS: tuple[Verdict, ...] = ("supported", "refuted", "undecided", "not comparable", "not measured yet")
PRIMARY = 10  # statements that share one error
SENTENCES: dict[Verdict, str] = {  # what a verdict says to readers who know no statistics
    "supported": "Yes",
    "refuted": "No",
    "undecided": "Not decided by these measurements",
    "not comparable": "Not comparable, because a network is no better than the best constant output",
    "not measured yet": "Not measured yet",
}


class NoRows(ValueError):
    """A number was asked for that the rows do not have, such as one of a run that failed its precondition."""


class NotMeasured(NoRows):
    """The rows have nothing about a part of the study that was left out, such as a corpus."""


class AtFloor(NoRows):
    """A lead was asked for of networks of which one has not learned anything."""


@dataclass(frozen=True)
class Looks:
    """When the seeds of a claim are looked at: after the `first`, and after each later one up to `most`."""

    first: int
    most: int

    def error(self, seeds: int, primary: bool) -> float:
        """The error that the look after that many seeds may spend.

        >>> [round(Looks(3, 6).error(seeds, primary=False), 4) for seeds in (3, 4, 5, 6)]
        [0.025, 0.0083, 0.0083, 0.0083]
        """
        share = (self.first if seeds <= self.first else 1) / self.most
        return round((1 - LEVEL) / (PRIMARY if primary else 1), 9) * share


@dataclass(frozen=True)
class Estimator:
    """How an effect and its interval of a given level are computed; None if no row meets the precondition."""

    interval: str  # for readers
    of: Callable[[Sequence[Row], float], Estimate | None]


@dataclass(frozen=True)
class Statement:
    """One statement of a claim. Its thresholds are constants of the claim's module."""

    name: str  # unique within the claim
    text: str
    effect: str  # what is measured, with its unit
    estimator: Estimator
    above: float = -math.inf
    below: float = math.inf
    primary: bool = False

    @property
    def threshold(self) -> str:
        """The condition in words.

        >>> Statement("a", "", "", exact(lambda rows: 0.0), above=0.1).threshold
        'above 0.1'
        """
        bounds = [f"above {self.above:.3g}"] * math.isfinite(self.above)
        return " and ".join(bounds + [f"below {self.below:.3g}"] * math.isfinite(self.below))


@dataclass(frozen=True)
class Result:
    """A statement with its effect, as measured, and its verdict."""

    statement: Statement
    estimate: Estimate | None
    verdict: Verdict

    @property
    def sentence(self) -> str:
        """The verdict for readers who know no statistics."""
        s, e = self.statement, self.estimate
        said = f"{SENTENCES[self.verdict]}: {s.text}"
        if e is None or self.verdict in ("not comparable", "not measured yet"):
            return said
        value, low, high = (f"{round(number, 9) + 0.0:.3g}" for number in (e.value, e.low, e.high))
        spread = f", with {e.n} seeds between {low} and {high}" if e.low < e.high < math.inf else ""
        return f"{said} Measured: {value}{spread}; needed: {s.threshold} ({s.effect})."

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite end of an interval is None, because JSON has no infinity."""
        s, e = self.statement, self.estimate
        numbers = {key: _finite(getattr(e, key)) if e else None for key in ("value", "low", "high")}
        return {
            "name": s.name,
            "statement": s.text,
            "primary": s.primary,
            "effect": s.effect,
            **numbers,
            "samples": e.n if e else 0,
            "interval": s.estimator.interval,
            "threshold": s.threshold,
            "verdict": self.verdict,
        }


def judge(statement: Statement, rows: Sequence[Row], looks: Looks) -> Result:
    """The statement's effect in these rows and the verdict."""
    if not rows:
        return Result(statement, None, "not measured yet")
    error = looks.error(len({row["seed"] for row in rows}), statement.primary)
    try:
        estimate = statement.estimator.of(rows, 1 - error)
    except NotMeasured:
        return Result(statement, None, "not measured yet")
    except AtFloor:
        return Result(statement, None, "not comparable")
    return Result(statement, estimate, verdict(estimate, statement.above, statement.below))


def verdict(estimate: Estimate | None, above: float, below: float) -> Verdict:
    """Decide by the interval.

    >>> verdict(Estimate(2.0, 1.0, 3.0, 5), 0.5, math.inf), verdict(Estimate(2.0, 1.0, 3.0, 5), 1.5, math.inf)
    ('supported', 'undecided')
    """
    if estimate is None or math.isnan(estimate.value):
        return "undecided"
    if above < estimate.low and estimate.high < below:
        return "supported"
    return "refuted" if estimate.high <= above or estimate.low >= below else "undecided"


def exact(value: Callable[[Sequence[Row]], float]) -> Estimator:
    """A count or another number without chance, so without interval."""

    def estimate(rows: Sequence[Row], level: float) -> Estimate | None:
        try:
            number = value(rows)
        except (NotMeasured, AtFloor):
            raise
        except NoRows:
            return None
        return Estimate(number, number, number, 1)

    return Estimator("exact", estimate)


def over_seeds(value: Callable[[Sequence[Row]], float]) -> Estimator:
    """Student's interval of the mean of `value` over seeds.

    Networks that are compared within `value` share a seed, so differences are paired. Seeds for which `value` raises
    `NoRows` are left out; `Estimate.n` tells how many remain. A single one has an infinite interval. A seed with a
    network at its floor makes the statement not comparable.
    """

    def estimate(rows: Sequence[Row], level: float) -> Estimate | None:
        by_seed: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            by_seed[row["seed"]].append(row)
        values = []
        for own in by_seed.values():
            try:
                values.append(value(own))
            except (NotMeasured, AtFloor):
                raise
            except NoRows:
                continue
        return mean_interval(values, level) if values else None

    return Estimator("Student, over seeds", estimate)


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
