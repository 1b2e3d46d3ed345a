"""Logging of a run: `metrics.jsonl`, `validation.jsonl`, callbacks, and the terminal."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from headwise.core.batches import Stream, TrainingBatch
from headwise.errors import writing
from headwise.evaluate.logs import TRAINING_LOG, VALIDATION_LOG, complete_lines

SHOWN = {"perplexity": ".2f", "accuracy": ".1%", "mae": ".4f"}  # metrics shown on the terminal, if the task has them
LONG = 1e6  # larger numbers are shown in scientific notation


class MetricsLog:
    """Append-only logs of a run. On resume, records after the checkpoint's step are removed first.

    `metrics.jsonl` has a line `{"step": ..., "loss": ..., ...}` every `train.log_every` steps, `validation.jsonl` one
    for every validation. Loss is per target; for translation, nats per token.
    """

    def __init__(self, folder: Path, after_step: int) -> None:
        self._paths = {name: folder / name for name in (TRAINING_LOG, VALIDATION_LOG)}
        for path in self._paths.values():
            with writing(path):
                folder.mkdir(parents=True, exist_ok=True)
                _truncate(path, after_step)

    def training(self, record: dict[str, Any]) -> None:
        """Log one interval of training."""
        self._append(TRAINING_LOG, record)

    def validation(self, record: dict[str, Any]) -> None:
        """Log one validation."""
        self._append(VALIDATION_LOG, record)

    def _append(self, name: str, record: dict[str, Any]) -> None:
        path = self._paths[name]
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _truncate(path: Path, after_step: int) -> None:
    """Keep the complete lines up to `after_step`."""
    if not path.exists():
        return
    kept = [f"{line}\n" for line, record in complete_lines(path) if record["step"] <= after_step]
    draft = path.with_suffix(".draft")
    try:
        draft.write_text("".join(kept), encoding="utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


class Terminal:
    """Progress display: a bar on a terminal, otherwise one line per interval."""

    def __init__(self, total: int | None, done: int, show: bool = True) -> None:
        live = show and sys.stderr.isatty()
        self.show = show
        self._bar = tqdm(total=total, initial=done, unit="step", disable=not live, dynamic_ncols=True, leave=True)
        self._live = live

    def plan(self, total: int) -> None:
        """Expect this many updates."""
        self._bar.total = total

    def step(self) -> None:
        """Count one update."""
        self._bar.update()

    def interval(self, record: dict[str, Any]) -> None:
        """Show the figures of the last interval."""
        if record["loss"] is None:
            self.say(f"step {record['step']}: no update since the last line had a finite loss and gradient")
            return
        if self._live:
            self._bar.set_postfix_str(
                f"loss {_number(record['loss'], '.3f')}, {record['tokens_per_second']:,.0f} tok/s, "
                f"{_utilisation(record)}{_padding(record, '.0%')}waiting {record['data_wait']:.0%}"
            )
        else:
            self.say(
                f"step {record['step']}: loss {_number(record['loss'], '.4f')}, {_shown(record)}"
                f"{record['tokens_per_second']:,.0f} tokens/s, {_utilisation(record)}"
                f"{_duration(record['seconds_left'])} left, "
                f"{_padding(record, '.1%')}waiting for data {record['data_wait']:.1%}"
            )

    def say(self, message: str) -> None:
        """Print one line, above the bar if there is one."""
        if self.show:
            tqdm.write(message, file=sys.stderr)

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()


def _shown(record: dict[str, Any]) -> str:
    """
    >>> _shown({"step": 1, "accuracy": 0.5})
    'accuracy 50.0%, '
    """
    return "".join(f"{name} {_number(record[name], style)}, " for name, style in SHOWN.items() if name in record)


def _utilisation(record: dict[str, Any]) -> str:
    """
    >>> _utilisation({"mfu": 0.352}), _utilisation({})
    ('MFU 35.2%, ', '')
    """
    return f"MFU {record['mfu']:.1%}, " if "mfu" in record else ""


def _padding(record: dict[str, Any], style: str) -> str:
    """
    >>> _padding({"padding": 0.05}, ".0%"), _padding({}, ".0%")
    ('padding 5%, ', '')
    """
    return f"padding {record['padding']:{style}}, " if "padding" in record else ""


def _number(value: float, style: str) -> str:
    """
    >>> _number(4.0, ".2f"), _number(1e304, ".2f")
    ('4.00', '1.0e+304')
    """
    return f"{value:{style}}" if value < LONG else f"{value:.1e}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Clock:
    """Speed, data waiting time and, if there is any, padding since the last logged line.

    Args:
        operations: floating-point operations of a training step with a batch; 0 = unknown.
        peak: operations per second that the device can do, if known.
    """

    def __init__(
        self,
        stream: Stream,
        padded: bool = True,
        operations: Callable[[TrainingBatch], int] = lambda batch: 0,
        peak: float | None = None,
    ) -> None:
        self._stream = stream
        self._padded = padded
        self._operations_of, self._peak = operations, peak
        self.restart()

    def restart(self) -> None:
        """Start a new interval."""
        self._started, self._waited = time.monotonic(), self._stream.wait_seconds
        self._real = self._cells = self._tokens = self._steps = self._operations = 0

    def count(self, batches: Sequence[TrainingBatch]) -> None:
        """Count a step with these batches."""
        self._steps += 1
        self._real += sum(batch.n_real for batch in batches)
        self._cells += sum(batch.n_cells for batch in batches)
        self._tokens += sum(batch.n_tokens for batch in batches)
        self._operations += sum(map(self._operations_of, batches))

    def figures(self, steps_left: int) -> dict[str, float]:
        """The figures of the interval."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        speed = self._operations / seconds
        return {
            "tokens_per_second": self._tokens / seconds,
            **({"tflops": speed / 1e12} if speed else {}),
            **({"mfu": speed / self._peak} if speed and self._peak else {}),
            **({"padding": 1 - self._real / max(1, self._cells)} if self._padded else {}),
            "data_wait": (self._stream.wait_seconds - self._waited) / seconds,
            "seconds": seconds,
            "seconds_left": seconds / max(1, self._steps) * steps_left,
        }
