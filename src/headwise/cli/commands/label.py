"""Example: headwise label hf:google/vit-base-patch16-224 photo.jpg"""

import argparse

from headwise.cli.generation import pretrained_options, print_ranked, top_option
from headwise.cli.loading import model_with
from headwise.cli.rules import in_file


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser)
    parser.add_argument("picture", type=in_file, metavar="IMAGE", help="image file: PNG, JPEG, ...")
    top_option(parser, "number of labels to print")


def run(options: argparse.Namespace) -> None:
    """Print labels with their probabilities."""
    model = model_with(options, "label pictures")
    print_ranked([[(one.probability, one.name) for one in model.label(options.picture, options.top)]])
