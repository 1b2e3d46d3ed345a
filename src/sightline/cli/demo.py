"""`sightline demo`."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("demo", help="train on dates in five languages and show the result, in minutes")
    parser.add_argument("--out", default="runs/demo", help="model directory to write (default: %(default)s)")
    parser.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> None:
    """Train on the generated corpus and show what came out."""
    from sightline.demo.run import demo

    demo(Path(options.out))
