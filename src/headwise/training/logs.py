"""Log files of a run: JSON records, one per line; `metrics.py` writes them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError

TRAINING_LOG, VALIDATION_LOG = "metrics.jsonl", "validation.jsonl"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, also of a running training; empty if there is no file."""
    return [record for _, record in complete_lines(path)] if path.exists() else []


def complete_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines with their records; incomplete lines, from a crash or still being written, are skipped."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            yield line, record


@dataclass(frozen=True)
class TrainingHistory:
    """The records of a run, in order."""

    training: list[dict[str, Any]]  # one every `train.log_every` updates: "step", "loss", "learning_rate", ...
    validation: list[dict[str, Any]]  # "step", "loss", other metrics, "best", and for translation "sample"


def training_history(folder: str | Path) -> TrainingHistory:
    """The history of the run in a model folder, also while it is training.

    >>> history = training_history("runs/ende")  # doctest: +SKIP
    >>> [(record["step"], record["bleu"]) for record in history.validation]  # doctest: +SKIP
    [(1000, 12.4), (2000, 19.8)]

    Raises:
        UserError: the folder has no log.
    """
    paths = [Path(folder, name) for name in (TRAINING_LOG, VALIDATION_LOG)]
    if not any(path.exists() for path in paths):
        raise UserError(f"{folder}: has no {TRAINING_LOG} or {VALIDATION_LOG}; name a folder that `train` has written")
    return TrainingHistory(*map(read_log, paths))
