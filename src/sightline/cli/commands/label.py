"""`sightline label`."""

import argparse

from sightline.cli.generation import compute_option, print_ranked, top_option
from sightline.cli.loading import model_with
from sightline.cli.options import PRETRAINED, model_option
from sightline.cli.rules import in_file


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, PRETRAINED)
    compute_option(parser)
    parser.add_argument("picture", type=in_file, metavar="IMAGE", help="image file: PNG, JPEG, ...")
    top_option(parser, "labels to print")


def run(options: argparse.Namespace) -> None:
    """Print labels with their probabilities."""
    model = model_with("label", options, "label pictures")
    print_ranked([[(one.probability, one.name) for one in model.label(options.picture, options.top)]])
