"""Checks of the output folder: a run never replaces a model, a log or a tokenizer of another run.

A folder has a run that can be resumed if it has checkpoints or the `STARTED` marker (see `training.checkpoint`). A
model without either cannot be resumed.
"""

from pathlib import Path

from headwise.checkpoint.layout import ADAPTER
from headwise.checkpoint.trained import CARD, CONFIG, GENERATION, RUN, TOKENIZER
from headwise.errors import UserError, writing
from headwise.training.checkpoint import CHECKPOINTS, STARTED, checkpoint_paths, newest_undamaged, verify_checkpoint
from headwise.training.logs import TRAINING_LOG, VALIDATION_LOG

WEIGHTS = "*.safetensors"
WRITTEN = (CONFIG, ADAPTER, WEIGHTS, RUN, TOKENIZER, GENERATION, TRAINING_LOG, VALIDATION_LOG, CARD)  # patterns


def check_out(folder: Path, resume: bool) -> None:
    """Check that a run may write to `folder`.

    Raises:
        UserError: the run would replace other files; the folder has a run, and `resume` is False; or all its
            checkpoints are damaged.
    """
    checkpoints = folder / CHECKPOINTS
    found = [path.name for pattern in WRITTEN for path in sorted(folder.glob(pattern))]
    whole = newest_undamaged(checkpoints, verify_checkpoint, warn=lambda message: None)
    if whole and CONFIG not in found:
        raise UserError(f"--out {folder}: has checkpoints but no {CONFIG}; restore it or name another folder")
    if whole or (checkpoints / STARTED).exists():
        if not resume:
            raise UserError(f"--out {folder}: already holds a run; add --resume to resume it or name another folder")
    elif any(folder.glob(WEIGHTS)):
        why = "without checkpoints, so it cannot be resumed" if resume else "already"
        raise UserError(f"--out {folder}: holds a model {why}; name another folder, or move the model away first")
    elif found:
        raise UserError(f"--out {folder}: already has {found[0]}, which a run would replace; name another folder")


def mark_started(folder: Path) -> None:
    """Add the marker of a run without checkpoints, which can be restarted; no effect if there are checkpoints."""
    marker = folder / CHECKPOINTS / STARTED
    if not checkpoint_paths(marker.parent):
        with writing(marker):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
