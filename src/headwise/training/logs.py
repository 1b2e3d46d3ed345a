"""The log files of a run, one JSON record per line. Writing them is the work of `metrics.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRAINING_LOG = "metrics.jsonl"


VALIDATION_LOG = "validation.jsonl"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log, also of a run that is under way; none where there is no such file."""
    return [record for _, record in whole_lines(path)] if path.exists() else []


def whole_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines with their records; a line that a crash has torn, or that is just being written, is left out."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            yield line, record
