"""Example: headwise caption runs/captions photo.jpg --beam-size 4"""

import argparse
import json
from dataclasses import asdict

from headwise.cli.generation import (
    format_output,
    generation_options,
    generation_settings,
    pretrained_options,
    search_settings,
)
from headwise.cli.loading import model_with
from headwise.cli.options import format_option, refuse_unread
from headwise.cli.rules import in_file

COMMON = ("--beam-size", "--max-new-tokens", "--n-best", "--sample", "--seed", "--format", "--compute", "--device")


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser)
    parser.add_argument("pictures", type=in_file, nargs="+", metavar="IMAGE", help="image file: PNG, JPEG, ...")
    format_option(
        parser, "text: a caption per line, with its alternatives below it; jsonl adds file, tokens and scores"
    )
    generation_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print a caption for each picture."""
    model = model_with(options, "write captions")
    settings = generation_settings(options)
    refuse_unread(settings, search_settings(model))
    for picture, written in zip(options.pictures, model.caption(options.pictures, **settings), strict=True):
        record = {"picture": picture, **asdict(written)}
        print(json.dumps(record, ensure_ascii=False) if options.format == "jsonl" else format_output(written, "text"))
