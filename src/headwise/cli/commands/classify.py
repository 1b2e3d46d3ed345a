"""Example: headwise classify runs/topics input.txt -o labels.tsv"""

import argparse
import json
from typing import Any

from headwise.cli.files import lines_of, output
from headwise.cli.loading import with_integers
from headwise.cli.options import ANY_MODEL, format_option, input_option, model_option, output_option
from headwise.config.settings import INTEGERS
from headwise.errors import UserError
from headwise.models.commands import commands_of
from headwise.models.load import load_task
from headwise.text.prepared.prepared import chunks


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, f"{ANY_MODEL}; a classifier")
    input_option(parser)
    output_option(parser)
    style = "text: label, tab, probability (for several labels: both lists, separated by commas; for regression: the "
    style += "number); jsonl adds the probabilities of all labels"
    format_option(parser, style)
    choices = ("float32", *INTEGERS)
    compute = f"{', '.join(choices)}: weight precision; int8 and int4 are for pretrained encoders (default: float32)"
    parser.add_argument("--compute", choices=choices, metavar="NAME", help=compute)
    threshold = "for models with several labels for a text: probability above which it has a label (default: 0.5)"
    parser.add_argument("--threshold", type=float, metavar="P", help=threshold)


def run(options: argparse.Namespace) -> None:
    """Line in, label out."""
    model: Any = load_task("classify", options.model, options.device, published=True)
    if options.command not in commands_of(model):
        has_none = "was saved without a head for classes of texts; train --task classify adds one"
        raise UserError(f"{options.model}: {has_none}")
    with_integers(model, options)
    classify, pretrained = model.classify, model.head != "trained"
    with output(options.output) as file:
        for lines in chunks(lines_of(options.input, "classify")):
            texts = [tuple(line.split("\t")) for line in lines] if pretrained else lines
            for found in classify(texts, threshold=options.threshold):
                as_text = options.format == "text"
                line = found.as_line() if as_text else json.dumps(found.as_record(), ensure_ascii=False)
                file.write(line + "\n")
