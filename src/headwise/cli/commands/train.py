"""Example: headwise train --recipe tiny --train train.en train.de --valid valid.en valid.de --out runs/ende"""

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path

from headwise.cli.options import (
    device_option,
    document_languages,
    file_option,
    files_option,
    language_options,
    task_option,
    whole_number,
)
from headwise.cli.parallel_texts import holds_pairs
from headwise.config.settings import recipe_names
from headwise.config.tasks import TASKS
from headwise.documents import is_memory
from headwise.evaluate.logs import training_history
from headwise.runtime.checkpoint.model_card import card_commands, next_steps
from headwise.runtime.checkpoint.trained import CARD
from headwise.text.files.split import parse_validation_size

COMMON = ("--recipe", "--train", "--valid", "--out", "--task", "--init", "--set", "--minutes", "--resume", "--device")
TRACKERS = {"tensorboard": "TensorBoard (files in --out)", "wandb": "Weights & Biases", "mlflow": "MLflow"}


def add_options(parser: argparse.ArgumentParser) -> None:
    task_option(parser)
    recipe = f"settings to train with: {', '.join(recipe_names())}, or a .toml file; not needed with --init"
    parser.add_argument("--recipe", default="", metavar="NAME", help=recipe)
    training_options(parser, "By task: " + "; ".join(f"{name}: {task.files}" for name, task in TASKS.items()))
    able = ", ".join(name for name, task in TASKS.items() if task.tuning)
    init = f"model whose weights and tokenizer to start from; tasks that may start from a pretrained one: {able}"
    parser.add_argument("--init", default="", metavar="MODEL", help=init)
    links = "word links (i-j) of the training pairs, a line per pair; one head learns them (train.alignment_weight)"
    file_option(parser, "--alignments", links)


def training_options(parser: argparse.ArgumentParser, files: str, held_out: str = "") -> None:
    """The options of every training.

    Args:
        files: a description of the training files.
        held_out: the part of them that is used for validation by default.
    """
    files_option(parser, "--train", f"training files; also .gz. {files}", required=True)
    valid = "validation files; or the part of the training files to hold out: 1%% or 500pairs"
    files_option(parser, "--valid", f"{valid} (default: {held_out}%)" if held_out else valid)
    parser.set_defaults(valid=[held_out] if held_out else [])
    parser.add_argument("--out", required=True, metavar="DIR", help="model folder to write")
    setting = "set a setting, such as train.max_steps=1000 (see `headwise settings`); may be repeated"
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=setting)
    parser.add_argument("--resume", action="store_true", help="continue the run in --out where it stopped")
    files_option(parser, "--add", "more training files for the run that --resume continues, besides those of --train")
    device_option(parser)
    seed = {"type": "train.seed={}".format, "help": "random seed (default: the recipe's train.seed)"}
    parser.add_argument("--seed", dest="set", action="append", metavar="N", **seed)
    minutes = {"type": "train.minutes={}".format, "help": "train for so long; sets the number of updates"}
    parser.add_argument("--minutes", dest="set", action="append", metavar="N", **minutes)
    special = "strings that are always one token, such as '<2de>'; for a pretrained model, NEW=COPY_OF starts the new "
    special += "token as a copy"
    parser.add_argument("--special", nargs="+", default=[], metavar="TOKEN", help=special)
    group = parser.add_argument_group("processes and logs")
    many = "processes that train together, each on a GPU or a share of the CPU cores (default: %(default)s)"
    group.add_argument("--devices", type=whole_number(1), default=1, metavar="N", help=many)
    share = "processes that tokenize large files (default: one per core)"
    group.add_argument("--workers", type=whole_number(0), default=0, metavar="N", help=share)
    tracking = {"dest": "trackers", "action": "append_const", "default": []}
    for name, title in TRACKERS.items():
        group.add_argument(f"--{name}", **tracking, const=name, help=f"also log to {title}")
    language_options(parser)
    document_languages(parser, "; the model keeps it for `headwise serve`")


def run(options: argparse.Namespace) -> None:
    """Train a model, or resume a run."""
    from headwise.pytorch.tasks.run import TrainRequest
    from headwise.pytorch.tasks.train import train_model
    from headwise.pytorch.training import trackers

    given = {field.name: getattr(options, field.name) for field in fields(TrainRequest) if hasattr(options, field.name)}
    callbacks = [tracker() for tracker in trackers.TRACKERS if tracker.name in options.trackers]
    given["train"] = [*options.train, *options.add]
    reason = train_model(TrainRequest(**given, settings=options.set, callbacks=callbacks))
    is_first = os.environ.get("RANK", "0") == "0"  # torchrun sets it
    if is_first and not reason.startswith("SIG") and is_useful(Path(options.out)):
        print(_next_steps(options), file=sys.stderr)


def _next_steps(options: argparse.Namespace) -> str:
    """Commands for the new model, which read the validation files or a sentence of them."""
    folder = Path(options.out)
    commands = [line.split(" ") for line in card_commands(folder / CARD)]
    source = next((words[words.index("--source") + 1] for words in commands if "evaluate" in words), "")
    names: dict[str, Path | str | None] = {"FROM-TO": "en-de"}
    if not options.valid or parse_validation_size(options.valid):
        names[source] = None  # no file has these pairs alone
    elif holds_pairs(options.valid[0]):
        several = is_memory(options.valid[0]) and any(options.languages)
        names |= {source: options.valid[0], "--reference": "--languages" if several else ""}
        names["reference.txt"] = "-".join(options.languages) if several else ""
    else:
        names |= dict(zip((source, "reference.txt"), options.valid, strict=False))
    sample = training_history(folder).validation[-1].get("sample", {})
    steps = next_steps(folder, names, sample.get("source", ""))
    return steps + "\n(en-de stands for your languages.)" * any("FROM-TO" in words for words in commands)


def is_useful(folder: Path) -> bool:
    """Whether a validation has found the model better than guessing."""
    return any(record["best"] for record in training_history(folder).validation)
