"""`sightline fill`."""

import argparse

from sightline.cli.generation import compute_option, print_ranked, top_option
from sightline.cli.loading import model_with
from sightline.cli.options import PRETRAINED, model_option


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, PRETRAINED)
    compute_option(parser)
    parser.add_argument("text", metavar="TEXT", help="text with [MASK] or <mask>, whichever the model uses")
    top_option(parser, "predictions for each mask")


def run(options: argparse.Namespace) -> None:
    """Print predictions with their probabilities."""
    model = model_with("fill_mask", options, "fill masks")
    print_ranked([[(one.probability, one.text) for one in mask] for mask in model.fill_mask(options.text, options.top)])
