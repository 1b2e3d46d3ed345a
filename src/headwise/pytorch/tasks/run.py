"""The configuration, the job, the trainer and the baselines of a run; shared by all tasks."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.config.settings import RunConfig, apply_settings, check, load_recipe
from headwise.config.tasks import TASKS
from headwise.core.batches import Stream
from headwise.core.build import count_parameters, parameters_of
from headwise.core.train import Progress
from headwise.device import choose_device
from headwise.errors import UserError
from headwise.evaluate.baselines import Baseline
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare
from headwise.pytorch.tasks.adapters import with_adapters
from headwise.pytorch.tasks.initial_model import config_from_model, recipe_name, with_added_tokens
from headwise.pytorch.tasks.job import Job, MakeJob, TrainRequest, notify
from headwise.pytorch.tasks.resuming import added_after, added_files, check_add, check_resumed, with_all_batches
from headwise.pytorch.tasks.streamed_text import check_stream
from headwise.pytorch.tasks.table import JOBS, fine_tuning_of
from headwise.pytorch.training.trainer import Trainer
from headwise.runtime.checkpoint.layout import is_family
from headwise.runtime.checkpoint.model_card import compare_baseline, model_card
from headwise.runtime.checkpoint.trained import CONFIG, read_run, read_settings
from headwise.text.files.sources import count_of
from headwise.text.files.split import parse_validation_size
from headwise.text.language_codes import language_pair_in
from headwise.version import __version__

GUESSES = {"forecast": "the last value"}  # others: the uniform distribution, or the most frequent class


def checked_job(
    request: TrainRequest, config: RunConfig, folder: Path, ranks: int = 1
) -> tuple[TrainRequest, Job, dict[str, Any]]:
    """The request, its job and the entries of config.json; with `--resume`, checked against the existing run."""
    pretrained = is_family(request.init) if request.init else False
    if pretrained and request.special:
        request, config = with_added_tokens(request)
    config, batches = with_all_batches(request, config, folder, ranks)
    task = config.model.task
    make: MakeJob | None = fine_tuning_of(task).job if pretrained else JOBS[task].from_scratch
    assert make
    job = make(request, config, folder)
    if config.train.lora_rank:
        job = with_adapters(job, request)
    check(job.config)
    about = {**_about(request, config.model.task), **batches, **job.about}
    if request.resume and (folder / CONFIG).is_file():
        added = added_files(request, config, folder, make)
        changes = check_resumed(request, job.config, about, folder, added)
        about |= {"changes": changes} if changes else {}
        if not added and (known := read_run(folder)[1].get("baselines")) is not None:
            return request, job, {**about, "baselines": known}
    return request, job, {**about, "baselines": baselines_of(job)}


def run_job(trainer: Trainer, request: TrainRequest, job: Job, about: Mapping[str, Any]) -> str:
    """Train from the start or the newest checkpoint, and return how it ended; `about` is that of config.json."""
    trainer.progress.validation_due = bool(request.init)  # the initial model is kept unless training improves it
    notify(request, f"{count_parameters(trainer.model):,} parameters, on {trainer.device}, into {trainer.folder}")
    if job.config.train.precision == "auto" and trainer.device.type == "cuda" and not trainer.in_half:
        notify(request, "train.precision = auto: float32, because this GPU has no bfloat16 (compute capability 8.0)")
    if request.resume:
        restored = trainer.restore(lambda message: notify(request, message))
        step = trainer.progress.step
        if added_after(about, step):
            trainer.progress.validations_since_best = 0  # patience counts from here on
        notify(request, f"resuming after step {step}" if restored else "no checkpoint yet: starting from step 0")
    reason = trainer.run(request.started)
    final = _final_message(reason, trainer.progress, trainer.folder, job.config.train.minutes)
    notify(request, final + _compared(job, about, trainer.progress))
    report = fine_tuning_of(job.config.model.task).report if request.init else None
    if report and request.show and not reason.startswith("SIG"):
        report(request, job)
    return reason


def run_config(request: TrainRequest) -> RunConfig:
    """The requested configuration, checked as far as possible without the data."""
    config = check(_initial_model_config(request) if request.init else _from_scratch_config(request))
    if request.alignments and config.model.task != "translate":
        raise UserError(f"--alignments is for translation models, not for model.task = {config.model.task}")
    _check_minutes(request, config)
    check_add(request, config)
    check_stream(request, config)
    if not request.valid and config.model.task != "forecast":
        raise UserError("--valid is required: validation files, or a part of the training files such as 1%")
    if parse_validation_size(request.valid) and config.model.task == "forecast":
        raise UserError(f"--valid {request.valid[0]}: for a time series, set data.valid_share instead")
    return config


def _check_minutes(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for a setting that counts updates of the whole run, whose number `train.minutes` sets."""
    if not config.train.minutes:
        return
    if any(given.partition("=")[0].strip() == "train.max_steps" for given in request.settings):
        raise UserError("train.max_steps does not go with train.minutes (--minutes), which sets it: leave one out")
    if getattr(config.data, "both_directions", 0):
        raise UserError("data.both_directions does not go with train.minutes (--minutes): set train.max_steps instead")


def _from_scratch_config(request: TrainRequest) -> RunConfig:
    """The configuration of a run without `request.init`."""
    if not request.recipe:
        raise UserError(
            "--recipe is required: the training settings. For translation, tiny is for ten thousand pairs and small "
            "for a hundred thousand; `headwise train --help` lists all recipes. --minutes N chooses one for the pairs, "
            "and --init MODEL has its own"
        )
    config = load_recipe(request.recipe)
    task = request.task or config.model.task
    if task in JOBS and not JOBS[task].from_scratch:
        raise UserError(f"--task {task} needs --init: the model folder to start from")
    if task == config.model.task:
        return apply_settings(config, request.settings)
    try:
        config = apply_settings(config, [f"model.task={task}"])
        return check(apply_settings(config, request.settings))
    except UserError as error:
        raise UserError(f"--task {task} with --recipe {request.recipe}: {error}") from None


def _initial_model_config(request: TrainRequest) -> RunConfig:
    """The configuration of a run that starts from a model."""
    task = request.task or (load_recipe(request.recipe).model.task if request.recipe else "translate")
    able = [name for name, row in TASKS.items() if row.tuning]
    if task not in able:
        raise UserError(f"--init is for --task {', '.join(able)}, and the task is {task}: leave one of the two out")
    return config_from_model(request)


def make_trainer(
    request: TrainRequest, job: Job, about: Mapping[str, Any], network: nn.Module, kind: Any = Trainer
) -> Trainer:
    """The trainer of a job's network."""
    folder, device = Path(request.out), choose_device(request.device)

    def export(parameters: Mapping[str, Tensor], figures: Mapping[str, float], what: str) -> None:
        card = model_card(job.config, about, count_parameters(network), figures, what, job.signature)
        job.layout.write_weights(folder, {**parameters_of(network), **parameters}, card)

    def open_stream(state: Mapping[str, int] | None, share: BatchShare = ALL_BATCHES) -> Stream:
        return job.stream(state, replace(share, pin=device.type == "cuda"))

    return kind(
        network,
        job.config,
        job.objective(network),
        open_stream,
        job,
        export,
        folder,
        device,
        request.show,
        job.baseline,
        request.callbacks,
        baselines_text(about.get("baselines", [])),
    )


def _about(request: TrainRequest, task: str) -> dict[str, Any]:
    """Entries of config.json besides the configuration; names, not paths, so that a folder can be moved."""
    languages = "-".join(request.languages) if any(request.languages) else ""
    if task == "translate" and not languages:
        named = language_pair_in(request.train, [Path(request.out).name])
        languages = "-".join(named) if named else _languages_of(request.init)
    return {
        "headwise": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "recipe": _recipe(request, task),
        "init": Path(request.init).absolute().name if request.init else "",
        **({"languages": languages} if languages else {}),
    }


def _languages_of(init: str) -> str:
    """The languages that an initial model trained here keeps, such as "en-de"; "" if it keeps none."""
    return read_settings(Path(init))[1].get("languages", "") if init and not is_family(init) else ""


def _recipe(request: TrainRequest, task: str) -> str:
    """The name of the recipe; without one, the recipe of the initial model."""
    if request.recipe:
        return Path(request.recipe).stem
    return recipe_name(request.init, task)


def _final_message(reason: str, progress: Progress, folder: Path, minutes: float) -> str:
    step = progress.step
    if reason.startswith("SIG"):
        resume = f"stopped after step {step}; add --resume to the same command to resume"
        return f"{resume}\nso far, {_kept(progress, folder)}"
    because = f"the time of {count_of(minutes, 'minute')} is over" if minutes else "all steps are done"
    because = "the validation stopped improving" if reason == "patience" else because
    if progress.best is None:
        advice = "lower train.learning_rate, raise train.warmup_steps or train longer"
        figures = _shown(progress.kept_figures)
        return (
            f"finished after step {step} ({because}), but the model in {folder}{figures} is no better than guessing: "
            f"{advice}"
        )
    return f"finished after step {step} ({because}): {_kept(progress, folder)}"


def _compared(job: Job, about: Mapping[str, Any], progress: Progress) -> str:
    """The cheap baselines, with advice for a model that is worse."""
    if progress.best is None:
        return ""
    metric, found = job.config.train.best_metric, about.get("baselines", [])[1:]
    return "".join(f"; {compare_baseline(one, progress.kept_figures, metric)}" for one in found)


def _kept(progress: Progress, folder: Path) -> str:
    """The model in the folder, with its score.

    >>> _kept(Progress(kept="step 450", kept_figures={"loss": 1.25}), Path("runs/a"))
    'the model in runs/a is that of step 450 (loss 1.25)'
    """
    if not progress.kept:  # a run that an older version began
        return f"the model is in {folder}"
    which = f"that of {progress.kept}" if progress.kept.startswith("step") else f"the {progress.kept}"
    return f"the model in {folder} is {which}{_shown(progress.kept_figures)}"


def _shown(figures: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
    return f" ({listed})" if listed else ""


def baselines_of(job: Job) -> list[dict[str, Any]]:
    """The entry "baselines" of config.json: name and metrics of guessing and of the job's `simple_baseline`, if any.

    Only in the first process, which writes the entry.
    """
    if os.environ.get("RANK", "0") != "0":
        return []
    simple = job.simple_baseline()
    guess = Baseline(GUESSES.get(job.config.model.task, "guessing"), {**job.baseline})
    return [one.as_json() for one in (guess, simple) if one and (one.figures or one.missing)]


def baselines_text(baselines: Sequence[dict[str, Any]]) -> str:
    """One line for the terminal.

    >>> baselines_text([{"name": "guessing", "figures": {"loss": 1.25, "accuracy": 0.5}}])
    'to compare with: guessing: loss 1.25, accuracy 0.5'
    """
    parts = []
    for one in baselines:
        figures = ", ".join(f"{name} {figure:.4g}" for name, figure in one.get("figures", {}).items())
        parts.append(f"{one['name']}: {figures or one['missing']}")
    return f"to compare with: {'; '.join(parts)}" if parts else ""
