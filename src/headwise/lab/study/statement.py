"""A statement: one effect that is measured, the threshold that decides, and the verdict that follows from both.

A verdict looks only at the interval of the effect: the statement is supported if the whole interval lies between
`above` and `below`, refuted if all of it lies outside, and undecided otherwise. Intervals have 95 % probability each;
they are not corrected for the number of statements.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headwise.evaluate.pages.statistics import LEVEL, Estimate, mean_interval

Row = dict[str, Any]  # numbers and names of one measured point
Verdict = Literal["supported", "refuted", "undecided", "open"]
VERDICTS: tuple[Verdict, ...] = ("supported", "refuted", "undecided", "open")  # open: not measured
RESAMPLES = 2000


class NoRows(ValueError):
    """A number was asked for that the rows do not have, such as one of a run that failed its precondition."""


class NotMeasured(NoRows):
    """The rows have nothing about a part of the study that was left out, such as a corpus; the statement is open."""


@dataclass(frozen=True)
class Estimator:
    """How an effect and its interval are computed from rows; None if no row meets the statement's precondition."""

    interval: str  # for readers
    of: Callable[[Sequence[Row]], Estimate | None]


@dataclass(frozen=True)
class Statement:
    """One statement of a claim. Its thresholds are constants of the claim's module."""

    name: str  # unique within the claim
    text: str
    effect: str  # what is measured, with its unit
    estimator: Estimator
    above: float = -math.inf
    below: float = math.inf

    @property
    def threshold(self) -> str:
        """The condition in words.

        >>> Statement("a", "", "", exact(lambda rows: 0.0), above=0.1).threshold
        'above 0.1'
        """
        bounds = [f"above {self.above:g}"] * math.isfinite(self.above)
        return " and ".join(bounds + [f"below {self.below:g}"] * math.isfinite(self.below))


@dataclass(frozen=True)
class Result:
    """A statement with its effect, as measured, and its verdict."""

    statement: Statement
    estimate: Estimate | None
    verdict: Verdict

    @property
    def shown_value(self) -> str:
        """The effect for readers."""
        return f"{self.estimate.value:.3g}" if self.estimate else ""

    @property
    def shown_interval(self) -> str:
        """The interval and its kind for readers."""
        kind, e = self.statement.estimator.interval, self.estimate
        if e is None:
            return "" if self.verdict == "open" else "no run met the precondition"
        if e.low == e.high:
            return kind
        if not math.isfinite(e.low):
            return f"unknown: one value ({kind})"
        return f"{e.low:.3g} to {e.high:.3g} ({kind}, n = {e.n})"

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite end of an interval is None, because JSON has no infinity."""
        s, e = self.statement, self.estimate
        numbers = {key: _finite(getattr(e, key)) if e else None for key in ("value", "low", "high")}
        return {
            "name": s.name,
            "statement": s.text,
            "effect": s.effect,
            **numbers,
            "samples": e.n if e else 0,
            "interval": s.estimator.interval,
            "threshold": s.threshold,
            "verdict": self.verdict,
        }


def judge(statement: Statement, rows: Sequence[Row]) -> Result:
    """The statement's effect in these rows and the verdict; without rows it is open."""
    if not rows:
        return Result(statement, None, "open")
    try:
        estimate = statement.estimator.of(rows)
    except NotMeasured:
        return Result(statement, None, "open")
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

    def estimate(rows: Sequence[Row]) -> Estimate | None:
        try:
            number = value(rows)
        except NotMeasured:
            raise
        except NoRows:
            return None
        return Estimate(number, number, number, 1)

    return Estimator("exact", estimate)


def over_seeds(value: Callable[[Sequence[Row]], float]) -> Estimator:
    """Student's interval of the mean of `value` over seeds.

    Networks that are compared within `value` share a seed, so differences are paired. Seeds for which `value` raises
    `NoRows` are left out; `Estimate.n` tells how many remain. A single one has an infinite interval.
    """

    def estimate(rows: Sequence[Row]) -> Estimate | None:
        by_seed: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            by_seed[row["seed"]].append(row)
        values = []
        for own in by_seed.values():
            try:
                values.append(value(own))
            except NotMeasured:
                raise
            except NoRows:
                continue
        return mean_interval(values) if values else None

    return Estimator("Student, over seeds", estimate)


def over_problems(value: Callable[[Sequence[Row]], float]) -> Estimator:
    """Percentile bootstrap of `value` over problems, such as sentences: all rows of a problem are drawn together.

    It covers the choice of problems, not that of seeds. The generator has a fixed seed.
    """

    def estimate(rows: Sequence[Row]) -> Estimate | None:
        by_problem: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            by_problem[row["problem"]].append(row)
        groups = list(by_problem.values())
        rng = np.random.default_rng(1)
        try:
            middle = value(rows)
            drawn = [
                value([row for i in rng.integers(len(groups), size=len(groups)) for row in groups[i]])
                for _ in range(RESAMPLES)
            ]
        except NotMeasured:
            raise
        except NoRows:
            return None
        low, high = np.quantile(drawn, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
        return Estimate(middle, float(low), float(high), len(groups))

    return Estimator("bootstrap, over problems", estimate)


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
