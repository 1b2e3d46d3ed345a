"""Runs killed at any moment, whose newest checkpoint is damaged then, end as if nothing had happened."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from holding import Hold
from together import all_end_well, group
from unit.training import ranks_program
from unit.training.ranks_program import KILLED_STEPS

from headwise.pytorch.training.checkpoint import CHECKPOINTS, checkpoint_paths

pytestmark = pytest.mark.distributed
PROGRAM = Path(ranks_program.__file__)


def finished(folder: Path, mode: str) -> dict[str, Any]:
    """What the first process tells after it has finished the run."""
    with group(1 if mode == "alone" else 2, [PROGRAM, "--until-killed", folder, mode]) as programs:
        return json.loads(all_end_well(programs)[0].splitlines()[-1])


def killed(folder: Path, mode: str, files: int) -> None:
    """Kill all processes of a run when the first has opened this many files after its second new checkpoint."""
    checkpoint = folder / CHECKPOINTS / f"step-{newest_step(folder) + 2:08d}"
    arguments = [PROGRAM, "--until-killed", folder, mode]
    with Hold(checkpoint, passed=files) as hold, group(1 if mode == "alone" else 2, arguments) as programs:
        hold.wait(programs[0])
    assert newest_step(folder) < KILLED_STEPS


def newest_step(folder: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in checkpoint_paths(folder / CHECKPOINTS)), default=0)


def flip(path: Path, rng: Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, rng: Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


@pytest.mark.parametrize(("mode", "n_files"), [("alone", 3), ("copies", 3), ("shards", 5)])
def test_a_run_that_is_killed_and_damaged_ends_with_the_same_bits(mode: str, n_files: int, tmp_path: Path) -> None:
    rng, out = Random(f"{mode} 3"), tmp_path / "killed"
    damages: list[Callable[[Path, Random], None]] = [flip, truncate]
    for damage in damages:
        killed(out, mode, files=rng.randrange(12))
        newest = checkpoint_paths(out / CHECKPOINTS)[-1]
        files = sorted(newest.iterdir())
        assert len(files) == n_files
        damage(rng.choice(files), rng)
    damaged_step = newest_step(out)
    ended, whole = finished(out, mode), finished(tmp_path / "whole", mode)
    assert ended["parameters"] == whole["parameters"]
    assert whole["step"] == 0 and 0 < ended["step"] < KILLED_STEPS
    [warning] = ended["warnings"]
    assert warning.startswith(f"checkpoint damaged, using the one before it: {newest}")
    assert ended["step"] < damaged_step
    assert not [*(out / CHECKPOINTS).glob(".*")]
