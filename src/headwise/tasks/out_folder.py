"""Checks of the output folder: a run never replaces a model, a log or a tokenizer of another run.

A folder has a run that can be resumed if it has checkpoints or the `STARTED` marker (see `training.checkpoint`). A
model without either cannot be resumed.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwise.checkpoint.layout import ADAPTER
from headwise.checkpoint.model_card import DECODING, with_row
from headwise.checkpoint.trained import CARD, CONFIG, GENERATION, RUN, TOKENIZER, read_run, write_decoding
from headwise.config.settings import RunConfig, flatten
from headwise.errors import UserError, writing
from headwise.tasks.job import TrainRequest, notify
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


FLAGS = {"train.seed": "--seed", "model.task": "--task"}  # settings that have an option


# Settings that a resumed run may change: they do not change the result of a training step.
MAY_CHANGE = {
    "train.max_steps",
    "train.log_every",
    "train.validate_every",
    "train.validate_bleu",
    "train.checkpoint_every",
    "train.keep_last",
    "train.patience",
    "train.average",
    "train.threads",
    "train.timeout",
}


def check_resumed(request: TrainRequest, config: RunConfig, about: Mapping[str, Any], folder: Path) -> None:
    """Refuse to resume the run in `folder` with other settings or files; report the settings that change."""
    before, corpus = read_run(folder)
    _check_same_run(folder, before, corpus, config, about)
    _warn_of_changed_schedule(request, config, before)
    _restore_search_settings(request, config, before, folder)


def _check_same_run(
    folder: Path, before: RunConfig, corpus: Mapping[str, Any], config: RunConfig, about: Mapping[str, Any]
) -> None:
    old, new = flatten(before), flatten(config)
    changed = [
        key
        for key in old
        if old[key] != new.get(key)
        and key not in MAY_CHANGE
        and not key.startswith("decode.")
        and key != "data.tokenizer"
    ]
    if changed:
        what = ", ".join(f"{key} was {old[key]!r}, now {new.get(key)!r}" for key in changed[:5])
        flags = dict.fromkeys(FLAGS.get(key, "--set") for key in changed)
        if corpus.get("recipe") != about["recipe"]:
            flags = {f"--recipe {corpus.get('recipe')}": None}
        given = " and ".join(flags)
        raise UserError(f"--resume {folder}: {what}; use the run's {given} or train into another folder")
    for key, files in (("key", "training"), ("valid_key", "validation"), ("mix_key", "data.mix")):
        if corpus["corpus"].get(key) != about["corpus"].get(key):
            raise UserError(f"--resume {folder}: the {files} files differ from those of the run")


def _warn_of_changed_schedule(request: TrainRequest, config: RunConfig, before: RunConfig) -> None:
    steps = before.train.max_steps
    if config.train.schedule in ("linear", "cosine") and config.train.max_steps != steps:
        notify(request, f"train.max_steps was {steps:,}: the learning rate now follows the new schedule")


def _restore_search_settings(request: TrainRequest, config: RunConfig, run: RunConfig, folder: Path) -> None:
    """Restore the run's own search settings if `evaluate --tune` has chosen others."""
    before, now = asdict(run.decode), asdict(config.decode)
    changed = [f"decode.{name} was {before[name]}, now {now[name]}" for name in now if before[name] != now[name]]
    if changed:
        notify(
            request,
            f"{', '.join(changed)}: restored the settings of the run; `headwise evaluate --tune` chooses them again",
        )
        write_decoding(folder, config.decode, lambda card: with_row(card, DECODING, ""))
