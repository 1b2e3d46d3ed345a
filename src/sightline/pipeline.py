"""From files and a recipe to a model directory: where a task's job meets the trainer.

What differs between tasks is in `sightline.tasks`, and is imported when its task is asked for; here is what all of them
have in common.
"""

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor

import sightline
from sightline.checkpoint.trained import (
    CONFIG,
    read_settings,
    settings_for,
    write_decoding,
    write_settings,
    write_weights,
)
from sightline.config import WITH_DECODER, RunConfig, apply_settings, check, flatten, load_recipe
from sightline.data.amount import parse_amount
from sightline.data.first_look import check_files
from sightline.device import choose_device
from sightline.errors import UserError
from sightline.model_card import DECODING, model_card, with_row
from sightline.network.parameters import count_parameters
from sightline.tasks.job import Job, TrainRequest, say
from sightline.tasks.translation import continuing
from sightline.training.allocator import keep_freed_memory
from sightline.training.checkpoint import checkpoint_paths
from sightline.training.lock import locked
from sightline.training.metrics import check_tensorboard
from sightline.training.trainer import CHECKPOINTS, Progress, Stream, Trainer

__all__ = ["TrainRequest", "train_model"]

FLAGS = {"train.seed": "--seed", "model.task": "--task"}  # settings with an option of their own

MakeJob = Callable[[TrainRequest, RunConfig, Path], Job]  # from what is asked for, the settings and the model directory
TASKS = {  # name -> module:function, a `MakeJob`
    "translate": "sightline.tasks.translation:translation_job",
    "denoise": "sightline.tasks.denoising:denoising_job",
    "classify": "sightline.tasks.classification:classification_job",
    "forecast": "sightline.tasks.forecasting:forecast_job",
}

# Settings a resumed run may change: they decide when something happens, not what is computed at a step.
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
}


def train_model(request: TrainRequest) -> str:
    """Train as asked and return how it ended: "finished", "patience" or the name of a signal.

    The model directory is `request.out`; from the first validation on it holds the best model so far.
    """
    config = _config(request)
    folder, device = Path(request.out), choose_device(request.device)
    _check_writable(folder)
    links = [request.alignments] if request.alignments else []
    valid = [] if parse_amount(request.valid) else request.valid
    check_files({"--train": request.train, "--valid": valid, "--alignments": links})
    if request.tensorboard:
        check_tensorboard()
    torch.set_num_threads(config.train.threads or torch.get_num_threads())
    keep_freed_memory()
    with locked(folder):
        _refuse_to_overwrite(folder, request.resume)
        return _train(request, config, folder, device)


def _train(request: TrainRequest, config: RunConfig, folder: Path, device: torch.device) -> str:
    make: MakeJob = resolve_name(TASKS[config.model.task])
    job = make(request, config, folder)
    config = check(job.config)
    about = {**_about(request), **job.about}
    if request.resume and (folder / CONFIG).is_file():
        _check_same_run(folder, config, about)
        _warn_of_another_schedule(request, config, folder)
        _decode_as_asked(request, config, folder)

    with torch.random.fork_rng():  # the caller's random state is his own
        torch.manual_seed(config.train.seed)
        trainer = _trainer(request, job, about, device)
        write_settings(folder, config, job.tokenizer, about)  # nothing before this leaves a trace
        say(request, f"{count_parameters(trainer.model):,} parameters, on {device}, into {folder}")
        if request.resume:
            restored = trainer.restore(lambda message: say(request, message))
            step = trainer.progress.step
            say(request, f"resuming after step {step}" if restored else "no checkpoint yet: starting anew")
        reason = trainer.run()
    say(request, _farewell(reason, trainer.progress, folder))
    return reason


def _config(request: TrainRequest) -> RunConfig:
    """The configuration asked for, checked as far as it can be without the data."""
    config = check(_starting(request) if request.init else _fresh(request))
    if request.alignments and config.model.task != "translate":
        raise UserError(f"--alignments is for translation models, not for model.task = {config.model.task}")
    if not request.valid and config.model.task != "forecast":
        raise UserError("--valid is required: the files to validate on, or a part of the training files such as 1%")
    if parse_amount(request.valid) and config.model.task == "forecast":
        raise UserError(f"--valid {request.valid[0]}: a series keeps back its latest rows, a share: data.valid_share")
    return config


def _fresh(request: TrainRequest) -> RunConfig:
    """The configuration of a run without `request.init`."""
    if not request.recipe:
        raise UserError("--recipe is required: the settings to train with; only --init MODEL brings its own")
    recipe = load_recipe(request.recipe)
    config = apply_settings(recipe, request.settings)
    if request.task in ("", recipe.model.task):
        return config
    config = apply_settings(config, [f"model.task={request.task}"])
    try:
        return check(config)
    except UserError as error:
        raise UserError(f"--task {request.task} with --recipe {request.recipe}: {error}") from None


def _starting(request: TrainRequest) -> RunConfig:
    """The configuration of a run that starts from a model."""
    task = request.task or (_fresh(request).model.task if request.recipe else "translate")
    if task != "translate":
        raise UserError(f"--init is for translation models, and the task is to {task}: leave one of the two out")
    try:
        start, _ = settings_for(WITH_DECODER, request.init)
    except UserError as error:
        raise UserError(f"--init {error}") from None
    return continuing(request, start)


def _trainer(request: TrainRequest, job: Job, about: Mapping[str, Any], device: torch.device) -> Trainer:
    network = job.network()
    folder = Path(request.out)

    def export(parameters: Mapping[str, Tensor], figures: Mapping[str, float], what: str) -> None:
        card = model_card(job.config, about, count_parameters(network), figures, what, job.signature)
        write_weights(folder, parameters, card)

    def open_stream(state: Mapping[str, int] | None) -> Stream:
        return job.stream(state, pin=device.type == "cuda")

    return Trainer(
        network,
        job.config,
        job.objective(network),
        open_stream,
        job.validation(network, device),
        export,
        folder,
        device,
        request.show,
        request.tensorboard,
        job.chance,
    )


def _about(request: TrainRequest) -> dict[str, Any]:
    """What config.json says beside the configuration: names, not paths, for the directory points nowhere else."""
    return {
        "sightline": sightline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "recipe": _recipe(request),
        "init": Path(request.init).absolute().name if request.init else "",
    }


def _recipe(request: TrainRequest) -> str:
    """Name of the recipe whose settings are used; that of the model to start from where none is given."""
    return Path(request.recipe).stem or read_settings(Path(request.init))[1].get("recipe", "")


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        what = "is not writable" if nearest.is_dir() else "is a file"
        raise UserError(f"--out {folder}: {nearest} {what}; name another folder")


def _refuse_to_overwrite(folder: Path, resume: bool) -> None:
    if not resume and (checkpoint_paths(folder / CHECKPOINTS) or (folder / CONFIG).exists()):
        raise UserError(f"--out {folder}: holds a model already; add --resume to go on with it or name another folder")


def _check_same_run(folder: Path, config: RunConfig, about: Mapping[str, Any]) -> None:
    """Refuse to resume a run as another one."""
    before, corpus = read_settings(folder)
    old, new = flatten(before), flatten(config)
    changed = [
        key
        for key in old
        if old[key] != new[key] and key not in MAY_CHANGE and not key.startswith("decode.") and key != "data.tokenizer"
    ]
    if changed:
        what = ", ".join(f"{key} was {old[key]!r}, now {new[key]!r}" for key in changed[:5])
        flags = dict.fromkeys(FLAGS.get(key, "--set") for key in changed)
        if corpus.get("recipe") != about["recipe"]:
            flags = {f"--recipe {corpus.get('recipe')}": None}
        given = " and ".join(flags)
        raise UserError(f"--resume {folder}: {what}; give the run's own {given} or train into another folder")
    for key, files in (("key", "training"), ("valid_key", "validation")):
        if corpus["corpus"].get(key) != about["corpus"][key]:
            raise UserError(f"--resume {folder}: the {files} files are not those the run was started with")


def _warn_of_another_schedule(request: TrainRequest, config: RunConfig, folder: Path) -> None:
    before = read_settings(folder)[0].train.max_steps
    if config.train.schedule in ("linear", "cosine") and config.train.max_steps != before:
        say(request, f"train.max_steps was {before:,}: from here on the learning rate follows the new end")


def _decode_as_asked(request: TrainRequest, config: RunConfig, folder: Path) -> None:
    """The run's own settings to decode with, where others were chosen for the weights there are (`evaluate --tune`)."""
    before, now = asdict(read_settings(folder)[0].decode), asdict(config.decode)
    changed = [f"decode.{name} was {before[name]}, now {now[name]}" for name in now if before[name] != now[name]]
    if changed:
        say(request, f"{', '.join(changed)}: the settings of the run; `sightline evaluate --tune` chooses anew")
        write_decoding(folder, config.decode, lambda card: with_row(card, DECODING, ""))


def _farewell(reason: str, progress: Progress, folder: Path) -> str:
    step = progress.step
    if reason.startswith("SIG"):
        return f"stopped after step {step}; give the same command with --resume to go on"
    because = "no better validation for a while" if reason == "patience" else "all steps are done"
    if progress.best is None:
        way_out = "lower train.learning_rate, raise train.warmup_steps or train longer"
        return (
            f"finished after step {step} ({because}), but the model in {folder} is no better than guessing: {way_out}"
        )
    return f"finished after step {step} ({because}): the model is in {folder}"
