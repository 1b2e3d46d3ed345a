"""Example: headwise tune hf:Helsinki-NLP/opus-mt-en-de --train mine.tsv --out runs/tuned"""

import argparse

from headwise.cli.commands.train import run as train
from headwise.cli.commands.train import training_options
from headwise.cli.options import TRANSLATION_MODEL
from headwise.config.tasks import TASKS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("init", metavar="MODEL", help=f"{TRANSLATION_MODEL} to start from")
    general = "general pairs to mix in against forgetting: short for --set data.mix=FILE,FILE"
    parser.add_argument("--general", nargs="+", action="extend", default=[], metavar="FILE", help=general)
    training_options(parser, TASKS["translate"].files)
    parser.set_defaults(recipe="", valid=["10%"])


def run(options: argparse.Namespace) -> None:
    """Fine-tune a model."""
    options.set += [f"data.mix={','.join(options.general)}"] * bool(options.general)
    train(options)
