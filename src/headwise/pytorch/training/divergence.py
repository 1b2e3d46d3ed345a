"""Runs that cannot go on: their numbers are not finite, or memory or disk are full; what the error says.

An update without a finite loss and gradient is skipped, so the parameters stay. A checkpoint keeps its name only if an
update after it was finite (`trainer`), and `CheckpointSaver.discard` deletes those that turn out to be useless.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from headwise.errors import NonFiniteError, UserError, WriteError
from headwise.pytorch.training.checkpoint import saved_step

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


def resources_error(
    error: BaseException, what: str, tokens_per_batch: int, checkpoints: Sequence[Path]
) -> UserError | None:
    """The error for exhausted memory (`what`) or a full disk, with advice; None if `error` is another one."""
    if isinstance(error, WriteError):
        if not checkpoints:
            return UserError(f"{error}, then start again with --resume; nothing was saved yet")
        return UserError(f"{error}, then resume with --resume; the last checkpoint is {checkpoints[-1].name}")
    if not (isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)):
        return None
    return UserError(
        f"{what}; lower train.tokens_per_batch (now {tokens_per_batch}) and raise train.accumulate to make up for it"
    )
