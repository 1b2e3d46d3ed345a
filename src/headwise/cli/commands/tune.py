"""Example: headwise tune hf:Helsinki-NLP/opus-mt-en-de --train mine.tsv --out runs/tuned"""

import argparse

from headwise.cli.commands.train import run as train
from headwise.cli.commands.train import training_options
from headwise.cli.options import TRANSLATION_MODEL
from headwise.config.tasks import TASKS

COMMON = (
    *("--train", "--valid", "--out", "--general", "--set", "--seed", "--resume", "--source-language"),
    *("--target-language", "--device"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("init", metavar="MODEL", help=TRANSLATION_MODEL)
    general = "pairs of general language to mix in, so that the model does not forget it"
    parser.add_argument("--general", nargs="+", action="extend", default=[], metavar="FILE", help=general)
    training_options(parser, f"Pairs: {TASKS['translate'].files}", held_out="10%")
    parser.set_defaults(recipe=TASKS["translate"].tuning, task="translate")


def run(options: argparse.Namespace) -> None:
    """Fine-tune a model."""
    options.set += [f"data.mix={','.join(options.general)}"] * bool(options.general)
    train(options)
