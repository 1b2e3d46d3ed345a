"""Log files of a run: JSON records, one per line; `metrics.py` writes them."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from headwise.errors import UserError, unknown

TRAINING_LOG, VALIDATION_LOG = "metrics.jsonl", "validation.jsonl"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, also of a running training; empty if there is no file."""
    return [record for _, record in complete_lines(path)] if path.exists() else []


def complete_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines with their records; incomplete lines, from a crash or still being written, are skipped."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        if (record := record_of(line)) is not None:
            yield line, record


def record_of(line: str) -> dict[str, Any] | None:
    """The record in a line of a log; None if it is damaged or incomplete."""
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


@dataclass(frozen=True)
class TrainingHistory:
    """The records of a run, in order."""

    training: list[dict[str, Any]]  # one every `train.log_every` updates: "step", "loss", "learning_rate", ...
    validation: list[dict[str, Any]]  # "step", "loss", other metrics, "best", and for translation "sample"

    def columns(self, of: str = "training") -> dict[str, Float[np.ndarray, " records"]]:
        """The figures of the records as arrays of one length, for plots and tables (`pandas.DataFrame(columns)`).

        Values that a record lacks are NaN. Texts, such as samples, are left out. With `train.log_every=1` there is a
        record for each update.

        Args:
            of: "training" ("step", "loss", "learning_rate", "gradient_norm", ...) or "validation" ("step", "loss",
                and the scores of the task).

        >>> TrainingHistory([{"step": 1, "loss": 2.5}, {"step": 2, "loss": None}], []).columns()["loss"].tolist()
        [2.5, nan]
        """
        if of not in ("training", "validation"):
            raise unknown("log", of, ("training", "validation"))
        records = self.training if of == "training" else self.validation
        names = dict.fromkeys(name for record in records for name, value in record.items() if _is_figure(value))
        return {
            name: np.array([value if _is_figure(value := record.get(name)) else math.nan for record in records], float)
            for name in names
        }


def training_history(folder: str | Path) -> TrainingHistory:
    """The history of the run in a model folder, also while it is training.

    >>> history = training_history("runs/ende")  # doctest: +SKIP
    >>> [(record["step"], record["bleu"]) for record in history.validation]  # doctest: +SKIP
    [(1000, 12.4), (2000, 19.8)]
    >>> history.columns()["gradient_norm"]  # doctest: +SKIP
    array([3.1, 1.7, 1.2])

    Raises:
        UserError: the folder has no log, or a log is damaged.
    """
    paths = [Path(folder, name) for name in (TRAINING_LOG, VALIDATION_LOG)]
    if not any(path.exists() for path in paths):
        raise UserError(f"{folder}: has no {TRAINING_LOG} or {VALIDATION_LOG}; name a folder that `train` has written")
    for path in paths:
        _check(path)
    return TrainingHistory(*map(read_log, paths))


def _check(path: Path) -> None:
    """`UserError` for a line that is no record, except the last one, which may still be written."""
    if not path.exists():
        return
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, 1):
        if record_of(line) is None:
            raise UserError(f"{path}, line {number}: is not a record of a run; remove the line, or resume the run")


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float)
