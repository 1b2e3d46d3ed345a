"""Divergence: when a run ends because its numbers are not finite, and what its error says.

An update without a finite loss and gradient is skipped, so the parameters stay. A checkpoint keeps its name only if an
update after it was finite (`trainer`), and `CheckpointSaver.discard` deletes those that turn out to be useless.
"""

from collections.abc import Sequence
from pathlib import Path

from headwise.errors import NonFiniteError
from headwise.training.checkpoint import saved_step

MAX_SKIPPED_IN_A_ROW = 10  # updates without finite loss and gradient before the run stops


def diverged_error(step: int, what: str, rate: float, left: Sequence[Path], changed: int) -> NonFiniteError:
    """The error for a run that has diverged.

    Args:
        step: of the latest update.
        what: is not finite.
        rate: the peak learning rate.
        left: the checkpoints that remain, oldest first.
        changed: the update that has changed the parameters last.
    """
    if not left:
        how = "and add --resume: the run starts again, because it has no good checkpoint yet"
    elif saved_step(left[-1]) >= changed:
        how = "and name another folder, because this one has no good checkpoint"
    else:
        how = f"and add --resume: the run continues after its last good checkpoint, {left[-1].name}"
    return NonFiniteError(
        f"step {step}: {what}; lower train.learning_rate (now {rate:g}), raise train.warmup_steps or set "
        f"train.clip_norm=1 (in a new run also model.norm_position=pre), {how}"
    )
