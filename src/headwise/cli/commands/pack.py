"""Example: headwise pack runs/ende --compute int8"""

import argparse
import sys

from headwise.runtime.checkpoint.pack import pack_model


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="translation model: a folder; the packed weights are written into it"
    )
    choices = ("float32", "int8", "bfloat16", "int4")
    text = f"{', '.join(choices)}: weight precision to pack (default: the one that the model translates with)"
    parser.add_argument("--compute", choices=choices, default="", metavar="NAME", help=text)


def run(options: argparse.Namespace) -> None:
    """Write the packed weights and print their size."""
    path = pack_model(options.model, options.compute)
    size = f"{path.stat().st_size / 2**20:,.1f} MiB"
    print(f"{path}: {size}; used as long as the weights stay as they are", file=sys.stderr)
