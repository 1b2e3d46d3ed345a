"""Example: headwise pack runs/ende --compute int8"""

import argparse
import sys

from headwise.checkpoint.pack import pack_model
from headwise.cli.options import TRAINED_HERE


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=f"{TRAINED_HERE}; the packed weights are written into it")
    text = "precision to pack, one file each (default: the precision that the model decodes with)"
    parser.add_argument("--compute", choices=("float32", "int8", "bfloat16"), default="", help=text)


def run(options: argparse.Namespace) -> None:
    """Write the packed weights and print their size."""
    path = pack_model(options.model, options.compute)
    size = f"{path.stat().st_size / 2**20:,.1f} MiB"
    print(f"{path}: {size}; used as long as the weights stay as they are", file=sys.stderr)
