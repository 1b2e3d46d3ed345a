"""Checks of the output folder, and the changes allowed in a resumed run: some settings, and more training files.

A run never replaces a model, a log or a tokenizer of another run. A folder has a run that can be resumed if it has
checkpoints or the `STARTED` marker (see `pytorch.training.checkpoint`). A model without either cannot be resumed.

Every change is reported, and recorded in config.json and in the model card. Not recorded are changes before the first
checkpoint, because the run starts again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headwise.config.settings import RunConfig, flatten
from headwise.config.tasks import tasks_with
from headwise.errors import UserError, writing
from headwise.evaluate.logs import TRAINING_LOG, VALIDATION_LOG
from headwise.pytorch.tasks.job import MakeJob, TrainRequest, base_names, notify
from headwise.pytorch.training.checkpoint import (
    CHECKPOINTS,
    STARTED,
    checkpoint_paths,
    newest_undamaged,
    saved_step,
    verify_checkpoint,
)
from headwise.runtime.checkpoint.layout import ADAPTER
from headwise.runtime.checkpoint.model_card import DECODING, with_row
from headwise.runtime.checkpoint.trained import CARD, CONFIG, GENERATION, RUN, TOKENIZER, read_run, write_decoding
from headwise.text.files.split import parse_validation_size

WEIGHT_FILES = "*.safetensors"
WRITTEN = (CONFIG, ADAPTER, WEIGHT_FILES, RUN, TOKENIZER, GENERATION, TRAINING_LOG, VALIDATION_LOG, CARD)  # patterns
ADDABLE = ("translate", "denoise", *tasks_with("running"))  # their networks do not depend on the training files
PLANNED_ANEW = "this epoch is planned anew, so it repeats some examples and omits others"
FLAGS = {"train.seed": "--seed", "model.task": "--task"}  # settings that have an option

ROUNDING = "rounding and dropout differ from here on"
FROM_HERE = "for the updates from here on"

SHARDS = "shards"  # of a stream
WEIGHTS = "data.weights"  # of the corpora, which --add may change

# Settings that a resumed run may change, and what else than their purpose changes with them
MAY_CHANGE = {
    "train.max_steps": "",
    "train.minutes": "",
    "train.log_every": "",
    "train.validate_every": "",
    "train.validate_bleu": "",
    "train.checkpoint_every": "",
    "train.keep_last": "",
    "train.patience": "",
    "train.average": "",
    "train.deterministic": ROUNDING,
    "train.threads": "",  # the trainer warns
    "train.timeout": "",
    "train.recompute": "results stay the same",
    "train.compile": ROUNDING,
    "train.shard": ROUNDING,
    "train.reduce": ROUNDING,
    "train.learning_rate": FROM_HERE,
    "train.warmup_steps": FROM_HERE,
    "train.clip_norm": FROM_HERE,
    "train.precision": ROUNDING,
    "train.accumulate": "",  # see `_report_update`
    "train.tokens_per_batch": "",
    SHARDS: "the shards of the stream have changed; another number of them begins the next epoch",
}


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
    elif any(folder.glob(WEIGHT_FILES)):
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


def check_add(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for `--add` with a run that cannot have more training files."""
    task = config.model.task
    if not request.add:
        return
    if not request.resume:
        raise UserError("--add is for a run that --resume continues: a new run gets all files with --train")
    if task not in ADDABLE:
        raise UserError(f"--add is for --task {', '.join(ADDABLE)}, not for {task}: train a new model on all files")
    if request.alignments:
        raise UserError("--add does not go with --alignments: train a new model on all files")


def added_files(request: TrainRequest, config: RunConfig, folder: Path, make: MakeJob) -> list[str]:
    """The names of the files of `request.add` that the run in `folder` does not have yet.

    The files before them are as many as the run has, and must give the data of the run.
    """
    before, run = read_run(folder)
    n_names, n_first = len(run["corpus"]["train"]), len(request.first_files)
    for n in range(n_first, len(request.train)):
        files, new = request.train[:n], request.train[n:]
        if len(base_names(files)) == n_names:
            earlier = replace(request, train=files, add=files[n_first:], show=False)
            try:
                job = make(earlier, replace(config, data=before.data), folder)
            except UserError:  # all files are usable, so these are not those of the run
                return []
            return base_names(new) if job.about["corpus"]["key"] == run["corpus"]["key"] else []
    return []


def added_after(about: Mapping[str, Any], step: int) -> bool:
    """Whether the run of this config.json got training files at its checkpoint of `step` or later.

    >>> added_after({"changes": [{"step": 6, "added": ["more.tsv"]}]}, 6), added_after({}, 6)
    (True, False)
    """
    return any("added" in change and change["step"] >= step for change in about.get("changes", []))


def check_resumed(
    request: TrainRequest, config: RunConfig, about: Mapping[str, Any], folder: Path, added: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """All changes of the run in `folder` since its start; those of this request are reported.

    Args:
        added: the names of training files that the run gets now.

    Raises:
        UserError: settings or files differ that must be those of the run.
    """
    before, run = read_run(folder)
    steps = [saved_step(path) for path in checkpoint_paths(folder / CHECKPOINTS)[-1:]]
    _check_same_run(request, before, run, config, about, added)
    if added:
        _report_added(request, config, added, steps)
    _warn_of_changed_schedule(request, config, before)
    _report_update(request, config, before)
    _restore_search_settings(request, config, before, folder)
    old, new = _as_json(before, run), _as_json(config, about)
    changed = [key for key in (*MAY_CHANGE, "ranks", WEIGHTS) if old.get(key) != new.get(key)]
    for key in changed:
        if effect := MAY_CHANGE.get(key):
            notify(request, f"{key} was {old[key]!r}, now {new[key]!r}: {effect}")
    changes = [{"step": step, "added": [*added]} for step in steps if added]
    changes += [{"step": step, "name": key, "before": old[key], "now": new[key]} for step in steps for key in changed]
    return [*run.get("changes", []), *changes]


def _as_json(config: RunConfig, about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run and its number of processes, with values as in config.json."""
    more = {"ranks": about.get("ranks", 1), SHARDS: about["corpus"].get("shards")}
    return json.loads(json.dumps({**flatten(config), **more}))


def _check_same_run(
    request: TrainRequest,
    before: RunConfig,
    run: Mapping[str, Any],
    config: RunConfig,
    about: Mapping[str, Any],
    added: Sequence[str],
) -> None:
    old, new, folder = flatten(before), flatten(config), Path(request.out)
    changed = [
        key
        for key in old
        if old[key] != new.get(key)
        and key not in MAY_CHANGE
        and not key.startswith("decode.")
        and key != "data.tokenizer"
        and not (added and key == WEIGHTS)
    ]
    if changed:
        what = ", ".join(f"{key} was {old[key]!r}, now {new.get(key)!r}" for key in changed[:5])
        flags = dict.fromkeys(FLAGS.get(key, "--set") for key in changed)
        if run.get("recipe") != about["recipe"]:
            flags = {f"--recipe {run.get('recipe')}": None}
        given = " and ".join(flags)
        raise UserError(f"--resume {folder}: {what}; use the run's {given} or train into another folder")
    for key, files in (("key", "training"), ("valid_key", "validation"), ("mix_key", "data.mix")):
        if run["corpus"].get(key) != about["corpus"].get(key) and not (added and key == "key"):
            advice = _advice_on_files(request, run, about["corpus"], key)
            raise UserError(f"--resume {folder}: the {files} files differ from those of the run{advice}")


def _advice_on_files(request: TrainRequest, run: Mapping[str, Any], now: Mapping[str, Any], key: str) -> str:
    """The advice on training or validation files that are not those of the run."""
    if key == "key":
        names, added = run["corpus"]["train"], [name for one in run.get("changes", []) for name in one.get("added", [])]
        more = f"; repeat --add {' '.join(added)}" if added and not request.add else ""
        if now["train"][: len(names)] == names != now["train"]:
            more = "; give only new files with --add" if request.add else "; give new files with --add"
        return f" ({', '.join(names)}){more}"
    if key == "valid_key" and (size := parse_validation_size(request.valid)) and request.add:
        return f": {size} holds out part of --train, and --add would change it; train a new model on all files"
    return ""


def _report_added(request: TrainRequest, config: RunConfig, added: Sequence[str], steps: Sequence[int]) -> None:
    """Report training files that a run gets after `steps`, its newest checkpoint; `UserError` if it has ended."""
    if steps and steps[-1] >= config.train.max_steps and not config.train.minutes:
        raise UserError(
            f"--add {added[0]}: the run has ended after train.max_steps = {steps[-1]}; set more steps, such as "
            f"--set train.max_steps={2 * steps[-1]}"
        )
    effect = f": {PLANNED_ANEW}" if steps else ""
    notify(request, f"adding {', '.join(added)} to the training files{effect}")


def _report_update(request: TrainRequest, config: RunConfig, before: RunConfig) -> None:
    """Report other batches per update, and what changes with them."""
    old, new = before.train, config.train
    if (old.accumulate, old.tokens_per_batch) == (new.accumulate, new.tokens_per_batch):
        return
    factor = new.accumulate * new.tokens_per_batch / (old.accumulate * old.tokens_per_batch)
    same = abs(factor - 1) < 0.01
    effects = ["as many tokens" if same else f"{factor:.3g} times the tokens, with the same learning rate"]
    if old.tokens_per_batch != new.tokens_per_batch:
        effects.append(PLANNED_ANEW)
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
