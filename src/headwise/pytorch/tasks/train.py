"""`headwise.train`: from training files to a model folder."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headwise.config.settings import RunConfig
from headwise.device import choose_device, device_name, usable_threads
from headwise.documents import is_memory
from headwise.errors import UserError
from headwise.lock import locked
from headwise.models.kinds import AnyModel
from headwise.models.load import load
from headwise.pytorch.tasks.choice import (
    chooses_recipe,
    measurements,
    minutes_of,
    with_choice,
    with_earlier_choice,
)
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.pytorch.tasks.parallel_text import with_memories
from headwise.pytorch.tasks.ranks import train_in_processes
from headwise.pytorch.tasks.resuming import check_out, mark_started
from headwise.pytorch.tasks.run import checked_job, make_trainer, run_config, run_job
from headwise.pytorch.training.callbacks import Callback
from headwise.runtime.allocator import keep_freed_memory
from headwise.runtime.checkpoint.hub import folder_of
from headwise.text.files.file_checks import check_files, parse_pairs
from headwise.text.files.sources import STREAM_PREFIX
from headwise.text.files.split import parse_validation_size


def train(
    train: Sequence[str | Path],
    valid: Sequence[str | Path],
    out: str | Path,
    recipe: str | Path = "",
    settings: Mapping[str, Any] | Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    special: Sequence[str] = (),
    show: bool = True,
    init: str | Path = "",
    task: str = "",
    alignments: str | Path = "",
    source_language: str = "",
    target_language: str = "",
    languages: Sequence[str] = ("", ""),
    devices: int = 1,
    callbacks: Sequence[Callback] = (),
    add: Sequence[str | Path] = (),
) -> AnyModel:
    """Train a model on files and return it, as `load` does.

    Args:
        train: source and target file, or one `.tsv`, `.jsonl`, `.tmx`, `.po`, `.xliff` or `hf:` dataset, or a folder of
            translation memories, or `stream:` with a pattern of shards; several of these are concatenated. Other tasks:
            `.tsv` files of texts and labels (classify), `.csv` files (forecast), plain text (denoise), text or `.jsonl`
            with one document per line (lm).
        valid: the same for validation, or `["1%"]` or `["500pairs"]` to hold out of the training files. To forecast
            it may be empty: the latest rows are held out.
        out: the model folder to write.
        recipe: name of a recipe or path of a `.toml` file. "" is "small", or with `init` the settings of that model.
            With `train.minutes` in `settings`, "" is a recipe that is chosen for pairs and minutes.
        settings: changes of the recipe: `{"train.max_steps": 1000}` or `["train.max_steps=1000"]`.
        resume: whether to continue the run in `out`.
        device: "auto", "cpu" or "cuda".
        special: strings that are always a single token, such as `<2de>`.
        show: whether to print progress.
        init: a model folder to fine-tune. Its network and tokenizer are kept, and [model] of a recipe must agree. It
            may be in the Hugging Face layout: an encoder-decoder, a decoder (for "lm"), an encoder (for "classify",
            "mlm") or Whisper (for "transcribe"); `recipe=""` is then the recipe for tuning: "tune", "tune-lm" etc.
        task: one of `headwise.config.tasks.TASKS`; "" is the task of the recipe.
        alignments: word links of the training pairs (Pharaoh format), for `train.alignment_weight`.
        source_language, target_language: codes of a pretrained multilingual model ("deu_Latn").
        languages: source and target of translation memories that have more languages or do not name the source. The
            model keeps them, for `headwise serve`; "" is what names of files tell, such as `train.en-de.tsv`.
        devices: processes that train the model together, each on its own CUDA device or its share of the cores. They
            import the calling program, so its code must be below `if __name__ == "__main__":`.
        callbacks: receive the events of the run, see `Callback`; those in `headwise.pytorch.training.trackers` are for
            TensorBoard, Weights & Biases and MLflow.
        add: more training files for a resumed run (`resume`); they are used at once.

    Raises:
        UserError: a file, a setting or the device is unusable, or the run was interrupted.
    """
    given = _as_arguments(settings)
    request = TrainRequest(
        recipe=str(recipe) or ("" if init or minutes_of(given) else "small"),
        train=[str(path) for path in (*train, *add)],
        add=[str(path) for path in add],
        valid=[str(path) for path in valid],
        out=str(out),
        settings=given,
        resume=resume,
        device=device,
        special=special,
        show=show,
        init=str(init),
        task=task,
        alignments=str(alignments),
        source_language=source_language,
        target_language=target_language,
        languages=languages,
        devices=devices,
        callbacks=callbacks,
    )
    reason = train_model(request)
    if reason.startswith("SIG"):
        raise UserError(f"{out}: training was interrupted by {reason}; call again with resume=True to resume")
    return load(out, device)


def _as_arguments(settings: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Settings as for `--set`."""
    if isinstance(settings, Mapping):
        return [f"{key}={_as_written(value)}" for key, value in settings.items()]
    return list(settings)


def _as_written(value: Any) -> str:
    """A Python value as text for `--set`."""
    return value if isinstance(value, str) else json.dumps(value)


def train_model(request: TrainRequest) -> str:
    """Train, and return how it ended: "finished", "patience" or the name of a signal.

    From the first validation on, `request.out` holds the best model so far.
    """
    request = replace(request, init=str(folder_of(request.init)) if request.init else "")
    request, outlook = with_earlier_choice(request)
    chooses = chooses_recipe(request)
    config = run_config(replace(request, recipe=measurements()[0].recipe) if chooses else request)
    folder = Path(request.out)
    device_name(request.device)
    _check_writable(folder)
    if config.model.task == "translate" and any(is_memory(path) for path in (*request.train, *request.valid)):
        request = with_memories(request)
    links = [request.alignments] if request.alignments else []
    valid = [] if parse_validation_size(request.valid) else request.valid
    texts = {"--train": request.train, "--valid": valid, "--alignments": links}
    check_files(
        {option: [path for path in paths if not _is_picture_folder(config, path)] for option, paths in texts.items()}
    )
    if config.model.task == "translate" and not any(path.startswith(STREAM_PREFIX) for path in request.train):
        for option, paths in (("--train", request.train), ("--valid", valid)):
            parse_pairs(option, paths, request.languages_of_files)
    if chooses:  # after all checks, because it reads the pairs and times a few updates
        check_out(folder, request.resume)
        request, outlook = with_choice(request)
        config = run_config(request)
    torch.set_num_threads(config.train.threads or usable_threads())
    keep_freed_memory()
    if request.devices != 1 or config.train.shard != "none" or "WORLD_SIZE" in os.environ:  # which torchrun sets
        reason = train_in_processes(request, config, folder, train_model)
    else:
        with locked(folder):
            check_out(folder, request.resume)
            reason = _train(request, config, folder)
    if outlook and not reason.startswith("SIG"):
        notify(request, outlook)
    return reason


def _is_picture_folder(config: RunConfig, path: str) -> bool:
    return config.model.task == "label" and Path(path).is_dir()


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        what = "is not writable" if nearest.is_dir() else "is a file"
        raise UserError(f"--out {folder}: {nearest} {what}; name another folder")


def _train(request: TrainRequest, config: RunConfig, folder: Path) -> str:
    request, job, about = checked_job(request, config, folder)
    device = choose_device(request.device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # keep the caller's random state
        torch.manual_seed(job.config.train.seed)
        trainer = make_trainer(request, job, about, job.network().to(device))
        mark_started(folder)  # the first file that is written
        job.layout.write_settings(folder, job.config, job.tokenizer, about)
        return run_job(trainer, request, job, about)
