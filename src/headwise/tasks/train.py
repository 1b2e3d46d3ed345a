"""Train as asked: from a request to a model folder."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headwise.checkpoint.hub import folder_of
from headwise.config.settings import RunConfig
from headwise.data.file_checks import check_files
from headwise.data.split import parse_validation_size
from headwise.device import choose_device, device_name, usable_threads
from headwise.errors import UserError
from headwise.localisation import is_memory
from headwise.models.load import load
from headwise.models.model import Model
from headwise.tasks.job import TrainRequest
from headwise.tasks.out_folder import check_out, mark_started
from headwise.tasks.parallel_text import with_memories
from headwise.tasks.ranks import train_in_processes
from headwise.tasks.run import _check_writable, _of_pictures, checked_job, make_trainer, run, run_config
from headwise.training.allocator import keep_freed_memory
from headwise.training.lock import locked
from headwise.training.tensorboard import check_tensorboard


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
) -> Model:
    """Train a model on files and return it, as `load` does.

    Args:
        train: source and target file, or one `.tsv`, `.jsonl`, `.tmx`, `.po`, `.xliff` or `hf:` dataset, or a folder of
            translation memories, or several of these in a row; to
            classify `.tsv` files of texts and labels, to forecast `.csv` files, to denoise files of plain text, for a
            language model text or `.jsonl` with a document a line.
        valid: the same for validation, or `["1%"]` or `["500pairs"]` of the training files, which are taken out of
            them; to forecast it may be empty, then the latest rows validate.
        out: the model directory to write.
        recipe: name of a recipe or path of a `.toml` file; "" is "small", or with `init` that model's own settings.
        settings: `{"train.max_steps": 1000}` or `["train.max_steps=1000"]`, on top of the recipe.
        special: strings that are one piece wherever a text contains them, such as `<2de>`.
        init: a model directory to start from; shape and tokenizer are its own, and a recipe's [model] must agree. Or a
            folder in the Hugging Face layout of an encoder-decoder of text, of a decoder alone (for "lm"), of an
            encoder alone (for "classify", "mlm") or of Whisper (for "transcribe"); "" as `recipe` is then "tune", or
            "tune-lm" and the like.
        task: one of `headwise.config.tasks.TASKS`; "" is the recipe's.
        alignments: word links of the training pairs (Pharaoh format), for `train.alignment_weight`.
        source_language, target_language: to a published model of many languages, as it has them ("deu_Latn").
        languages: source and target of translation memories, where these hold more or do not say which is which.
        devices: processes that train the model together, each on a CUDA device of its own or a share of the cores. They
            import the program that calls this, so what it does must stand below `if __name__ == "__main__":`.

    Raises:
        UserError: a file, a setting or the device is unusable, or the run was interrupted.
    """
    pairs = settings.items() if isinstance(settings, Mapping) else None
    listed = [f"{key}={_as_written(value)}" for key, value in pairs] if pairs is not None else list(settings)
    request = TrainRequest(
        recipe=str(recipe) or ("" if init else "small"),
        train=[str(path) for path in train],
        valid=[str(path) for path in valid],
        out=str(out),
        settings=listed,
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
    )
    reason = train_model(request)
    if reason.startswith("SIG"):
        raise UserError(f"{out}: training was interrupted by {reason}; call again with resume=True to go on")
    return load(out, device)


def _as_written(value: Any) -> str:
    """A value of Python as `--set` takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def train_model(request: TrainRequest) -> str:
    """Train as asked and return how it ended: "finished", "patience" or the name of a signal.

    The model directory is `request.out`; from the first validation on it holds the best model so far.
    """
    request = replace(request, init=str(folder_of(request.init)) if request.init else "")
    config = run_config(request)
    folder = Path(request.out)
    device_name(request.device)
    _check_writable(folder)
    if config.model.task == "translate" and any(is_memory(path) for path in (*request.train, *request.valid)):
        request = with_memories(request)
    links = [request.alignments] if request.alignments else []
    valid = [] if parse_validation_size(request.valid) else request.valid
    texts = {"--train": request.train, "--valid": valid, "--alignments": links}
    check_files({option: [path for path in paths if not _of_pictures(config, path)] for option, paths in texts.items()})
    if request.tensorboard:
        check_tensorboard()
    torch.set_num_threads(config.train.threads or usable_threads())
    keep_freed_memory()
    if request.devices != 1 or config.train.shard != "none" or "WORLD_SIZE" in os.environ:  # which torchrun sets
        return train_in_processes(request, config, folder, train_model)
    with locked(folder):
        check_out(folder, request.resume)
        return _train(request, config, folder)


def _train(request: TrainRequest, config: RunConfig, folder: Path) -> str:
    request, job, about = checked_job(request, config, folder)
    with torch.random.fork_rng():  # the caller's random state is his own
        torch.manual_seed(job.config.train.seed)
        trainer = make_trainer(request, job, about, job.network().to(choose_device(request.device)))
        mark_started(folder)  # nothing before this leaves a trace
        job.layout.write_settings(folder, job.config, job.tokenizer, about)
        return run(trainer, request, job)
