"""What a resumed run may change. Every change is reported, and recorded in config.json and in the model card.

Not recorded are changes before the first checkpoint, because the run starts again.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headwise.checkpoint.model_card import DECODING, with_row
from headwise.checkpoint.trained import CONFIG, read_run, write_decoding
from headwise.config.settings import RunConfig, flatten
from headwise.errors import UserError
from headwise.tasks.job import TrainRequest, notify
from headwise.training.checkpoint import CHECKPOINTS, checkpoint_paths, saved_step

FLAGS = {"train.seed": "--seed", "model.task": "--task"}  # settings that have an option

ROUNDING = "rounding and dropout differ from here on"

# Settings that a resumed run may change, and what else than their purpose changes with them
MAY_CHANGE = {
    "train.max_steps": "",
    "train.log_every": "",
    "train.validate_every": "",
    "train.validate_bleu": "",
    "train.checkpoint_every": "",
    "train.keep_last": "",
    "train.patience": "",
    "train.average": "",
    "train.threads": "",  # the trainer warns
    "train.timeout": "",
    "train.recompute": "results stay the same",
    "train.compile": ROUNDING,
    "train.shard": ROUNDING,
    "train.accumulate": "",  # see `_report_update`
    "train.tokens_per_batch": "",
}


def with_all_batches(
    request: TrainRequest, config: RunConfig, folder: Path, ranks: int
) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration with the batches per update by all processes, and entries of config.json.

    `train.accumulate` of a request counts those of one process. A resumed run keeps its batches if the request has the
    settings of the run, also those of another number of processes. If they cannot be shared among the processes, an
    update has more batches that are smaller.
    """
    train = config.train
    requested = [train.accumulate, train.tokens_per_batch]
    total, tokens = train.accumulate * ranks, train.tokens_per_batch
    if request.resume and (folder / CONFIG).is_file():
        run, about = read_run(folder)
        before = run.train
        counts = before.accumulate, before.accumulate / about.get("ranks", 1)
        known = [[count, before.tokens_per_batch] for count in counts] + [about.get("requested")]
        if requested in known:
            total, tokens = before.accumulate, before.tokens_per_batch
    if total < ranks or (train.shard != "none" and total % ranks):
        shared = ranks * -(-total // ranks)
        total, tokens = shared, max(1, round(tokens * total / shared))
    entries: dict[str, Any] = {"ranks": ranks} if ranks > 1 else {}
    if [total, tokens] != [train.accumulate * ranks, train.tokens_per_batch]:
        entries["requested"] = requested
    return replace(config, train=replace(train, accumulate=total, tokens_per_batch=tokens)), entries


def check_resumed(
    request: TrainRequest, config: RunConfig, about: Mapping[str, Any], folder: Path
) -> list[dict[str, Any]]:
    """All changes of the run in `folder` since its start; those of this request are reported.

    Raises:
        UserError: settings or files differ that must be those of the run.
    """
    before, run = read_run(folder)
    _check_same_run(folder, before, run, config, about)
    _warn_of_changed_schedule(request, config, before)
    _report_update(request, config, before)
    _restore_search_settings(request, config, before, folder)
    old, new = (
        {**flatten(made), "ranks": entries.get("ranks", 1)} for made, entries in ((before, run), (config, about))
    )
    changed = [key for key in (*MAY_CHANGE, "ranks") if old[key] != new[key]]
    for key in changed:
        if effect := MAY_CHANGE.get(key):
            notify(request, f"{key} was {old[key]!r}, now {new[key]!r}: {effect}")
    steps = [saved_step(path) for path in checkpoint_paths(folder / CHECKPOINTS)[-1:]]
    changes = [{"step": step, "name": key, "before": old[key], "now": new[key]} for step in steps for key in changed]
    return [*run.get("changes", []), *changes]


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


def _report_update(request: TrainRequest, config: RunConfig, before: RunConfig) -> None:
    """Report other batches per update, and what changes with them."""
    old, new = before.train, config.train
    if (old.accumulate, old.tokens_per_batch) == (new.accumulate, new.tokens_per_batch):
        return
    factor = new.accumulate * new.tokens_per_batch / (old.accumulate * old.tokens_per_batch)
    same = abs(factor - 1) < 0.01
    effects = ["as many tokens" if same else f"{factor:.3g} times the tokens, with the same learning rate"]
    if old.tokens_per_batch != new.tokens_per_batch:
        effects.append("this epoch is planned anew, so it repeats some examples and omits others")
    notify(
        request,
        f"an update has {new.accumulate} batches of {new.tokens_per_batch:,} tokens, before {old.accumulate} of "
        f"{old.tokens_per_batch:,}: {'; '.join(effects)}",
    )


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
