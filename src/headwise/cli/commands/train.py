"""Example: headwise train --recipe small --train train.en train.de --valid valid.en valid.de --out runs/ende"""

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path

from headwise.cli.options import device_option, document_languages, language_options, whole_number
from headwise.config.settings import recipe_names
from headwise.config.tasks import TASKS
from headwise.tasks.next_steps import next_steps
from headwise.tasks.run import TrainRequest
from headwise.tasks.train import train_model
from headwise.training.logs import training_history
from headwise.training.trackers import TRACKERS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=TASKS, default="", help="task to train for (default: the recipe's)")
    recipe = f"{', '.join(recipe_names())}, or a .toml file; optional with --init, which brings its own settings"
    parser.add_argument("--recipe", default="", help=recipe)
    training_options(parser, "; ".join(f"{name}: {task.files}" for name, task in TASKS.items()))
    able = ", ".join(name for name, task in TASKS.items() if task.tuning)
    init = f"start from the weights and tokenizer of this model; a pretrained one for {able}"
    parser.add_argument("--init", default="", metavar="MODEL", help=init)
    links = "word links of the training pairs (i-j, one line per pair), to train a head on (train.alignment_weight)"
    parser.add_argument("--alignments", default="", metavar="FILE", help=links)


def training_options(parser: argparse.ArgumentParser, files: str) -> None:
    """The options of every training; `files` describes the training files."""
    text = f"training files, one or several; also .gz. {files}"
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help=text)
    valid = "validation files; or 1%% or 500pairs to hold out from the training files (of a series the last rows)"
    parser.add_argument("--valid", nargs="+", default=[], metavar="FILE", help=valid)
    parser.add_argument("--out", required=True, metavar="DIR", help="model folder to write")
    setting = "override a setting of the recipe, for example train.max_steps=1000; may be repeated"
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=setting)
    parser.add_argument("--resume", action="store_true", help="continue the run in --out, bit for bit")
    device_option(parser)
    many = "processes that train one model, each on its own CUDA device or share of the CPU cores (default: 1)"
    parser.add_argument("--devices", type=whole_number(1), default=1, metavar="N", help=many)
    seed = {"type": "train.seed={}".format, "help": "random seed: short for --set train.seed=N"}
    parser.add_argument("--seed", dest="set", action="append", metavar="N", **seed)
    share = "worker processes that tokenize large files, for a new translation model (default: one per core)"
    parser.add_argument("--workers", type=whole_number(0), default=0, metavar="N", help=share)
    special = "string that is always one token ('<2de>'); for a pretrained model also NEW=COPY_OF"
    parser.add_argument("--special", nargs="+", default=[], metavar="TOKEN", help=special)
    tracking = {"dest": "trackers", "action": "append_const", "default": []}
    for tracker in TRACKERS:
        parser.add_argument(f"--{tracker.name}", **tracking, const=tracker, help=f"also log to {tracker.title}")
    language_options(parser)
    document_languages(parser)


def run(options: argparse.Namespace) -> None:
    """Train a model, or resume a run."""
    given = {field.name: getattr(options, field.name) for field in fields(TrainRequest) if hasattr(options, field.name)}
    callbacks = [tracker() for tracker in options.trackers]
    reason = train_model(TrainRequest(**given, settings=options.set, callbacks=callbacks))
    is_first = os.environ.get("RANK", "0") == "0"  # torchrun sets it
    if is_first and not reason.startswith("SIG") and is_useful(Path(options.out)):
        print(next_steps(Path(options.out)), file=sys.stderr)


def is_useful(folder: Path) -> bool:
    """Whether a validation has found the model better than guessing."""
    return any(record["best"] for record in training_history(folder).validation)
