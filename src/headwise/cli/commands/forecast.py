"""Example: headwise forecast runs/load history.csv -o forecast.csv"""

import argparse
from typing import Any

from headwise.cli.files import output
from headwise.cli.options import TRAINED_HERE, model_option, output_option
from headwise.cli.rules import in_file
from headwise.models.load import load_task


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, f"{TRAINED_HERE} with --task forecast")
    text = "CSV file with the columns of the training data; also .csv.gz"
    parser.add_argument("input", type=in_file, metavar="FILE", help=text)
    output_option(parser, "CSV file to write")


def run(options: argparse.Namespace) -> None:
    """Write the values after the last row, one per line."""
    model: Any = load_task("forecast", options.model, options.device)
    values = model.forecast(options.input)
    with output(options.output) as file:
        file.write(f"step,{model.scaling.target}\n")
        file.writelines(f"{step},{value:.6g}\n" for step, value in enumerate(values, start=1))
