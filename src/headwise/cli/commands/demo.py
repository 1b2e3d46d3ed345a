"""Example: headwise demo --out runs/demo"""

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", default="runs/demo", metavar="DIR", help="model folder to write (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> None:
    """Train on the generated corpus and show translations."""
    from headwise.lab.demo.run import demo

    demo(Path(options.out))
