"""`sightline tune`: `train --init` of a translator, with a part of the pairs held out and general ones between them."""

import argparse
from typing import Any

from sightline.cli.options import TRANSLATES
from sightline.cli.train import run_options, run_train
from sightline.config.tasks import TASKS


def add(commands: Any) -> None:
    """Register the command."""
    text = "train a translator further on pairs of your own, and say what that has changed"
    parser = commands.add_parser("tune", help=text)
    parser.add_argument("init", metavar="MODEL", help=f"{TRANSLATES}: what to start from")
    general = "general pairs to put between your own, against forgetting: short for --set data.mix=FILE,FILE"
    parser.add_argument("--general", nargs="+", action="extend", default=[], metavar="FILE", help=general)
    run_options(parser, TASKS["translate"].files)
    parser.set_defaults(recipe="", valid=["10%"], run=run_tune)


def run_tune(options: argparse.Namespace) -> None:
    """Train further."""
    options.set += [f"data.mix={','.join(options.general)}"] * bool(options.general)
    run_train(options)
