"""Log files of a run: JSON records, one per line (`metrics.py` writes them), and TensorBoard files."""

import json
from collections.abc import Iterator
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


def check_tensorboard() -> None:
    """`UserError` if TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise UserError("--tensorboard needs TensorBoard: pip install 'headwise[tensorboard]'") from None


def tensorboard_writer(folder: Path) -> Any:
    """A `SummaryWriter` for a model directory."""
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))
