"""A program that is killed in the middle of its work, as a power cut would, and goes on as if it had not been."""

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holding import Hold
from programs import Program

# Not part of a run
CLOCK = ("seconds", "elapsed", "tokens_per_second", "tflops", "data_wait", "seconds_left", "skipped")


def killed_at(path: Path, arguments: Sequence[object], step: int = 0) -> None:
    """Run `headwise` until `path` exists, or has logged this step, and kill it there."""
    with Hold(path, step) as hold, Program(arguments) as program:
        hold.wait(program)
        program.kill()
        assert program.wait() == -signal.SIGKILL


def killed_and_resumed(cli: Callable[..., Any], command: Sequence[object], step: int, out: Path, whole: Path) -> None:
    """Kill a run into `out` behind the checkpoint of `step`, go on, and find all that the run in `whole` has left."""
    killed_at(out / "checkpoints" / f"step-{step:08d}", [*command, "--out", out])
    last = records(whole, "metrics.jsonl")[-1]["step"]
    assert not (out / "checkpoints" / f"step-{last:08d}").exists()
    ran = cli(*command, "--out", out, "--resume")
    assert ran.code == 0 and "resuming after step " in ran.err, ran.err
    for name in ("metrics.jsonl", "validation.jsonl"):
        parts, expected = (
            [{key: value for key, value in row.items() if key not in CLOCK} for row in records(path, name)]
            for path in (out, whole)
        )
        assert parts == expected and "loss" in expected[0]
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def records(out: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a file that a run writes."""
    return [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]
