"""A claim with its results: all measurements, the figures, and the statements with their verdicts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.evaluate.pages.figures import Figure
from headwise.lab.study.claim import Claim
from headwise.lab.study.statement import VERDICTS, Result, Row


@dataclass(frozen=True)
class Finding:
    """A claim and its results; all statements are open while measurements are missing."""

    claim: Claim
    units: list[dict[str, Any]]  # as stored, with "selected": whether statements and figures use them
    missing: int  # units that have not been measured
    rows: list[Row]  # of the selected units
    figures: list[Figure]
    results: list[Result]
    fingerprint: str

    @classmethod
    def of(cls, claim: Claim, units: list[dict[str, Any]], missing: int, fingerprint: str) -> "Finding":
        """Draw and judge what was measured."""
        rows = rows_of_units([unit for unit in units if unit["selected"]])
        figures = claim.figures(rows) if rows else []
        return cls(claim, units, missing, rows, figures, claim.judge(rows if not missing else []), fingerprint)

    @property
    def seconds(self) -> float:
        """Time of all measurements, those with other learning rates included."""
        return sum((unit["seconds"] for unit in self.units), start=0.0)

    @property
    def counted(self) -> str:
        """The verdicts, counted, such as "3 supported, 1 open"."""
        counts = Counter(result.verdict for result in self.results)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])

    @property
    def note(self) -> str:
        """Why statements are open; empty if none is."""
        if not self.units and not self.missing:
            return f"Not measured: {self.claim.needs}"
        if self.missing:
            return f"Open: {self.missing} of {self.missing + len(self.units)} measurements are missing."
        return ""

    def as_json(self) -> dict[str, Any]:
        """Everything but the units, whose list is left empty."""
        return {
            "name": self.claim.name,
            "claim": self.claim.sentence,
            "source": self.claim.source,
            "fingerprint": self.fingerprint,
            "missing": self.missing,
            "seconds": round(self.seconds, 1),
            "statements": [result.as_json() for result in self.results],
            "units": [],
        }


def rows_of_units(units: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of stored units, each with its condition and seed."""
    return [{**unit["condition"], "seed": unit["seed"], **row} for unit in units for row in unit["rows"]]


def networks_trained(finding: Finding) -> list[list[str]]:
    """A table, with its header, of networks that were compared: size, learning rates, diverged updates.

    Diverged updates are those of all rates that were tried. Empty if the claim trains and compares nothing.
    """
    rows = rows_of_units(finding.units)
    kind = next((key for key in ("variant", "network", "factor", "positions", "cell") if rows and key in rows[0]), "")
    if not kind or not any("parameters" in row or "diverged" in row for row in rows):
        return []
    table = [["network", "parameters", "learning rates selected", "trainings", "diverged updates"]]
    for name in dict.fromkeys(str(row[kind]) for row in rows):
        own = [unit for unit in finding.units if any(str(row[kind]) == name for row in rows_of_units([unit]))]
        sizes = sorted({row["parameters"] for unit in own for row in unit["rows"] if row.get("parameters")})
        rates = sorted({unit["condition"].get("rate", 0.0) for unit in own if unit["selected"]} - {0.0})
        diverged = sum(unit["rows"][0].get("diverged", 0) for unit in own if unit["rows"])
        shown = f"{sizes[0]:,}" + f" to {sizes[-1]:,}" * (len(sizes) > 1) if sizes else ""
        table.append([name, shown, ", ".join(f"{rate:.2g}" for rate in rates), str(len(own)), str(diverged)])
    return table
