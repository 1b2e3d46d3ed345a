"""Checkpoints without a trainer."""

from pathlib import Path

from headwise.pytorch.training.checkpoint import Checkpoint, CheckpointDraft


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint and wait for it."""
    draft = CheckpointDraft(folder, checkpoint)
    return draft.complete(draft.sums())
