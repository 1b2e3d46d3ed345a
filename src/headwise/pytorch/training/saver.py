"""Saves the checkpoints of a run while it continues, and loads them; for a run of one process.

`parallel.RankSaver` and `sharded.ShardSaver` do so for several processes. The format is in `checkpoint.py`.
"""

from contextlib import suppress
from pathlib import Path

from torch import Tensor

from headwise.errors import WriteError
from headwise.pytorch.training.checkpoint import (
    Checkpoint,
    CheckpointDraft,
    StoredCheckpoint,
    StoredTensors,
    checkpoint_paths,
    load_checkpoint,
    remove_checkpoint,
    remove_drafts,
    remove_old,
    saved_step,
)


class CheckpointSaver:
    """Writes at most one checkpoint at a time, and keeps the newest.

    Args:
        folder: of the checkpoints.
        keep: number of checkpoints on disk.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep
        self.draft: CheckpointDraft | None = None  # being written

    def start(self, checkpoint: Checkpoint) -> None:
        """Start writing a checkpoint, when the one before it is complete."""
        self.finish()
        remove_drafts(self.folder)
        self.draft = CheckpointDraft(self.folder, checkpoint)

    def is_written(self) -> bool:
        """Whether a checkpoint is being written, and all its files are complete: `finish` need not wait."""
        return self.draft is not None and self.draft.done()

    def finish(self) -> None:
        """Wait for the checkpoint that is being written, if any, and name it.

        Raises:
            WriteError: it cannot be written.
        """
        draft, self.draft = self.draft, None
        if not draft:
            return
        try:
            self._complete(draft)
        except WriteError:
            remove_drafts(self.folder)  # free the disk space
            raise

    def discard(self, step: int) -> list[Path]:
        """Delete the checkpoints of update `step` and later, whose parameters have turned out to be useless.

        Without an earlier one, all that are complete stay. Returns those that remain, oldest first.
        """
        self._finish_before(step)
        remove_drafts(self.folder)
        paths = checkpoint_paths(self.folder)
        if paths and saved_step(paths[0]) < step:
            for path in paths:
                if saved_step(path) >= step:
                    remove_checkpoint(path)
        return checkpoint_paths(self.folder)

    def _finish_before(self, step: int) -> None:
        """Wait for the checkpoint that is being written, and name it if it is of an update before `step`."""
        with suppress(WriteError):
            if self.draft and self.draft.step < step:
                self.finish()
            elif self.draft:
                self.draft.sums()
        self.draft = None

    def leave(self) -> None:
        """Finish, if possible, when the run ends with an error."""
        with suppress(WriteError):
            self.finish()

    def load(self, path: Path) -> StoredCheckpoint:
        """Verify and open a checkpoint; ValueError if it is damaged."""
        return load_checkpoint(path)

    def own_part(self, tensors: StoredTensors, name: str, own: Tensor) -> Tensor:
        """The stored tensor, or this process's part of it, for a parameter, moment or average of the shape of `own`."""
        return tensors[name]

    def _complete(self, draft: CheckpointDraft) -> None:
        self._name(draft, draft.sums())

    def _name(self, draft: CheckpointDraft, sums: dict[str, str]) -> None:
        """Name a checkpoint whose files are written, and remove the oldest."""
        draft.complete(sums)
        remove_old(self.folder, self.keep)
