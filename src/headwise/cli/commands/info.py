"""Example: headwise info runs/ende"""

import argparse
import json

from headwise.cli.options import ANY_MODEL, model_option
from headwise.models.load import load
from headwise.models.summary import summary
from headwise.runtime.checkpoint.hub import folder_of


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, ANY_MODEL)
    parser.add_argument("--all", action="store_true", help="print all settings of the model and of its training")


def run(options: argparse.Namespace) -> None:
    """Print ten lines, or the whole configuration, section by section."""
    model = load(options.model, options.device)
    if not options.all:
        for name, text in summary(folder_of(options.model), model).items():
            print(f"{name:<14} {text}")
        return
    info = model.info()
    for name, value in info.items():
        if not isinstance(value, dict):
            print(f"{name} = {json.dumps(value)}")
    for name, table in info.items():
        if isinstance(table, dict):
            print(f"\n[{name}]")
            for key, value in table.items():
                print(f"{key} = {json.dumps(value)}")
