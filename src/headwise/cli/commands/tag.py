"""Example: headwise tag runs/names input.txt --format conll"""

import argparse
import json
from itertools import count
from typing import Any

from headwise.cli.files import lines_of, output
from headwise.cli.generation import pretrained_options
from headwise.cli.loading import encoding_model
from headwise.cli.options import format_option, input_option, output_option
from headwise.config.settings import INTEGERS
from headwise.text.prepared.prepared import chunks


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    input_option(parser)
    output_option(parser)
    parser.add_argument("--words", action="store_true", help="the words of the lines are separated by spaces already")
    style = "text: line number, start and end character, label, probability and text of each entity, separated by "
    style += "tabs; conll: a word and its tag per line; jsonl: both"
    format_option(parser, style, ("text", "conll", "jsonl"))


def run(options: argparse.Namespace) -> None:
    """Line in, its entities out."""
    model, numbers = encoding_model(options, "tag words; train --task tag teaches it"), count(1)
    with output(options.output) as file:
        for lines in chunks(lines_of(options.input, "tag")):
            for found in model.tag([line.split() for line in lines] if options.words else lines):
                file.write(_format_tags(found, next(numbers), options.format))


def _format_tags(found: Any, number: int, style: str) -> str:
    """The output for line `number`, with line ends."""
    if style == "jsonl":
        return json.dumps(found.as_record(), ensure_ascii=False) + "\n"
    if style == "conll":
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(found.words, found.tags, strict=True)) + "\n"
    rows = ((number, s.start, s.end, s.label, f"{s.probability:.4f}", " ".join(s.text.split())) for s in found.spans)
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)
