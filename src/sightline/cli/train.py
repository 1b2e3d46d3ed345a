"""`sightline train`."""

import argparse
from dataclasses import fields
from typing import Any

from sightline.cli.options import document_languages, language_options, whole
from sightline.config.settings import recipe_names
from sightline.config.tasks import TASKS


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("train", help="train a model on aligned text files, or for another task")
    parser.add_argument("--task", choices=TASKS, default="", help="what to train for (default: the recipe's)")
    recipe = f"{', '.join(recipe_names())}, or a .toml file; with --init it may be left out: that model's own settings"
    parser.add_argument("--recipe", default="", help=recipe)
    run_options(parser, "; ".join(f"{name}: {task.files}" for name, task in TASKS.items()))
    able = ", ".join(name for name, task in TASKS.items() if task.tuning)
    init = f"start from this model: its weights and tokenizer; also from a published one, for {able}"
    parser.add_argument("--init", default="", metavar="MODEL", help=init)
    links = "word links of the training pairs (i-j, a line each), for a head that learns them (train.alignment_weight)"
    parser.add_argument("--alignments", default="", metavar="FILE", help=links)


def run_options(parser: argparse.ArgumentParser, files: str) -> None:
    """What every training is told; `files` says what to train on."""
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE", help=f"{files}; several; also .gz")
    valid = "the same, to validate on; or 1%% or 500pairs, taken out of the training files; of a series the latest rows"
    parser.add_argument("--valid", nargs="+", default=[], metavar="FILE", help=valid)
    parser.add_argument("--out", required=True, metavar="DIR", help="model directory to write")
    setting = "override a setting of the recipe, for example train.max_steps=1000; may be repeated"
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=setting)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, exactly")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    many = "processes that train one model, each on a CUDA device of its own or a share of the cores (default: 1)"
    parser.add_argument("--devices", type=whole(1), default=1, metavar="N", help=many)
    seed = {"type": "train.seed={}".format, "help": "short for --set train.seed=N"}
    parser.add_argument("--seed", dest="set", action="append", metavar="N", **seed)
    share = "processes that cut large files into pieces, for a translator of ours (default: one for each core)"
    parser.add_argument("--workers", type=whole(0), default=0, metavar="N", help=share)
    special = "string that is one piece wherever a text has it ('<2de>'); of a published model also NEW=COPY_OF"
    parser.add_argument("--special", nargs="+", default=[], metavar="TOKEN", help=special)
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs into --out as well")
    language_options(parser)
    document_languages(parser)
    parser.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> None:
    """Train a model, or go on with one."""
    from sightline.tasks.run import TrainRequest
    from sightline.tasks.train import train_model

    said = {field.name: getattr(options, field.name) for field in fields(TrainRequest) if hasattr(options, field.name)}
    train_model(TrainRequest(**said, settings=options.set))
