"""Example: headwise fill hf:google-bert/bert-base-uncased "The capital of France is [MASK]." """

import argparse

from headwise.cli.generation import pretrained_options, print_ranked, top_option
from headwise.cli.loading import encoding_model
from headwise.config.settings import INTEGERS


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    parser.add_argument("text", metavar="TEXT", help="text with the model's mask token, [MASK] or <mask>")
    top_option(parser, "number of predictions for each mask")


def run(options: argparse.Namespace) -> None:
    """Print predictions with their probabilities."""
    model = encoding_model(options, "fill masks")
    print_ranked([[(one.probability, one.text) for one in mask] for mask in model.fill_mask(options.text, options.top)])
