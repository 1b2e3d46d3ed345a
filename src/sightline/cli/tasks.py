"""`sightline classify` and `sightline forecast`: models of other tasks at work."""

import argparse
import json
from typing import Any

from sightline.cli.files import in_file, lines_of, output
from sightline.cli.options import EITHER, input_option, model_options, output_option


def add(commands: Any) -> None:
    """Register the commands."""
    _classify_options(commands)
    _forecast_options(commands)


def _classify_options(commands: Any) -> None:
    parser = commands.add_parser("classify", help="find the label of every line")
    model_options(parser, what=EITHER)
    input_option(parser)
    output_option(parser)
    style = "text: label, tab, probability; jsonl adds the probabilities of all labels (default: %(default)s)"
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help=style)
    parser.set_defaults(run=run_classify)


def run_classify(options: argparse.Namespace) -> None:
    """Line in, label out."""
    from sightline.api import load_task
    from sightline.data.prepared import chunks

    model: Any = load_task("classify", options.model, options.device, published=True)
    classify, published = model.classify, model.reads == "text"  # or a `UserError`
    with output(options.output) as file:
        for lines in chunks(lines_of(options.input, "classify")):
            for found in classify([tuple(line.split("\t")) for line in lines] if published else lines):
                text = f"{found.label}\t{found.probability:.4f}"
                line = text if options.format == "text" else json.dumps(found.as_record(), ensure_ascii=False)
                file.write(line + "\n")


def _forecast_options(commands: Any) -> None:
    parser = commands.add_parser("forecast", help="continue a time series, with a model of --task forecast")
    model_options(parser)
    parser.add_argument(
        "input", type=in_file, metavar="INPUT.csv", help="CSV file with the columns of the training; also .gz"
    )
    output_option(parser, "CSV file to write")
    parser.set_defaults(run=run_forecast)


def run_forecast(options: argparse.Namespace) -> None:
    """The values after the last row, one a line."""
    from sightline.api import load_task

    model: Any = load_task("forecast", options.model, options.device)
    values = model.forecast(options.input)
    with output(options.output) as file:
        file.write(f"step,{model.scaling.target}\n")
        file.writelines(f"{step},{value:.6g}\n" for step, value in enumerate(values, start=1))
