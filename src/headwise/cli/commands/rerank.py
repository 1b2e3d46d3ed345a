"""Example: headwise rerank hf:cross-encoder/ms-marco-MiniLM-L6-v2 "how tall is the Zugspitze" passages.txt"""

import argparse
import json

from headwise.cli.files import lines_of, output
from headwise.cli.generation import pretrained_options
from headwise.cli.loading import encoding_model
from headwise.cli.options import format_option, output_option, whole_number
from headwise.cli.rules import in_file
from headwise.config.settings import INTEGERS


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    parser.add_argument("query", metavar="QUERY", help="text that the candidates are compared with")
    text = "candidates, one per line; also .gz (default: standard input)"
    parser.add_argument("input", nargs="?", type=in_file, default="-", metavar="FILE", help=text)
    parser.add_argument(
        "--best", type=whole_number(1), default=0, metavar="N", help="print the N best candidates (default: all)"
    )
    output_option(parser)
    format_option(parser, "text: score, line number and candidate, separated by tabs; jsonl: the same as JSON lines")


def run(options: argparse.Namespace) -> None:
    """Lines in, best first."""
    model = encoding_model(options, "score a query with a text; cross-encoders with one output do")
    found = model.rerank(options.query, list(lines_of(options.input, "rerank")))
    with output(options.output) as file:
        for one in found[: options.best or None]:
            text = f"{one.score:.6g}\t{one.index + 1}\t{one.text}"
            file.write((text if options.format == "text" else json.dumps(one.as_record(), ensure_ascii=False)) + "\n")
