"""A claim with its results: what was measured, the figures, and the statements with their verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.evaluate.pages.figures import Figure
from headwise.lab.study.claim import Claim, distinct
from headwise.lab.study.statement import VERDICTS, Result, Row

Measured = dict[str, dict[str, Any]]  # units as stored, by key


@dataclass(frozen=True)
class Finding:
    """A claim and its results. They follow from the seeds that every network has, once these are enough for a look."""

    claim: Claim
    tuning: Measured  # runs that only select learning rates
    units: Measured  # runs that statements and figures use
    waiting: int  # units that are needed next
    at_edge: Sequence[str]  # networks whose best learning rate is the lowest or highest that was tried
    rows: list[Row]
    figures: list[Figure]
    results: list[Result]
    fingerprint: str
    shared: Mapping[str, int] = field(default_factory=dict)  # units that other claims use, too, by the claim

    @classmethod
    def of(
        cls,
        claim: Claim,
        tuning: Measured,
        units: Measured,
        waiting: int,
        at_edge: Sequence[str],
        fingerprint: str,
        shared: Mapping[str, int],
    ) -> "Finding":
        """Draw and judge what was measured."""
        rows = claim.view(rows_of_units(list(units.values())))
        enough = rows and len(distinct(rows, "seed")) >= claim.looks.first
        figures = claim.figures(rows) if rows else []
        results = claim.judge(rows if enough else [])
        return cls(claim, tuning, units, waiting, at_edge, rows, figures, results, fingerprint, shared)

    @property
    def is_measured(self) -> bool:
        """Whether any statement has a verdict."""
        return any(result.verdict != "not measured yet" for result in self.results)

    @property
    def seconds(self) -> float:
        """Time of all measurements, those with other learning rates included."""
        return sum((unit["seconds"] for unit in [*self.tuning.values(), *self.units.values()]), start=0.0)

    @property
    def counted(self) -> str:
        """The verdicts, counted, such as "3 supported, 1 undecided"."""
        counts = Counter(result.verdict for result in self.results)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])

    @property
    def note(self) -> str:
        """What a reader must know before the verdicts; empty if nothing."""
        done = len(self.tuning) + len(self.units)
        parts = []
        if not done and not self.waiting:
            parts.append(f"Not measured yet: {self.claim.needs}")
        elif self.waiting and not self.is_measured:
            parts.append(f"Not measured yet: {done} measurements are done, at least {self.waiting} are missing.")
        elif self.waiting:
            parts.append("Undecided statements wait for more seeds.")
        if self.at_edge:
            names = ", ".join(self.at_edge)
            parts.append(f"A better learning rate may lie outside of the range that was tried: {names}.")
        if self.shared:
            others = ", ".join(f"{name} ({count})" for name, count in self.shared.items())
            parts.append(f"These verdicts rest in part on the same trainings as those of {others}.")
        return " ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Everything but the units, which are named by their keys."""
        return {
            "name": self.claim.name,
            "claim": self.claim.sentence,
            "source": self.claim.source,
            "fingerprint": self.fingerprint,
            "seconds": round(self.seconds, 1),
            "waiting": self.waiting,
            "at_edge": list(self.at_edge),
            "shared": dict(self.shared),
            "statements": [result.as_json() for result in self.results],
            "tuning": list(self.tuning),
            "units": list(self.units),
        }


def rows_of_units(units: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of stored units, each with its condition and seed."""
    return [{**unit["condition"], "seed": unit["seed"], **row} for unit in units for row in unit["rows"]]


def kind_of(row: Row) -> str:
    """The name of the network that a row or a condition is about; empty if it compares none."""
    named = [str(row[key]) for key in ("variant", "network", "factor", "positions", "cell") if row.get(key)]
    return ", ".join([*named[:1], *row.get("changes", ())])


def networks_trained(finding: Finding) -> list[list[str]]:
    """A table, with its header, of networks that were compared: size, learning rates, diverged updates.

    Diverged updates are those of all rates that were tried. Empty if the claim trains and compares nothing.
    """
    units = [*finding.tuning.values(), *finding.units.values()]
    rows = [{**unit["condition"], **unit["rows"][0], "unit": key} for key, unit in enumerate(units) if unit["rows"]]
    if not any(kind_of(row) and ("parameters" in row or "diverged" in row) for row in rows):
        return []
    table = [["network", "parameters", "learning rates selected", "trainings", "diverged updates"]]
    for name in filter(None, dict.fromkeys(kind_of(row) for row in rows)):
        own = [row for row in rows if kind_of(row) == name]
        sizes = sorted({row["parameters"] for row in own if row.get("parameters")})
        rates = sorted({row.get("rate", 0.0) for row in own if row["unit"] >= len(finding.tuning)} - {0.0})
        diverged = sum(row.get("diverged", 0) for row in own)
        shown = f"{sizes[0]:,}" + f" to {sizes[-1]:,}" * (len(sizes) > 1) if sizes else ""
        table.append([name, shown, ", ".join(f"{rate:.2g}" for rate in rates), str(len(own)), str(diverged)])
    return table
