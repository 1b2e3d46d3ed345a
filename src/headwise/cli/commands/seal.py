"""Example: headwise seal runs/ende"""

import argparse
import sys

from headwise.errors import UserError
from headwise.runtime.checkpoint.hub import folder_of
from headwise.runtime.checkpoint.layout import ADAPTER, CONFIG
from headwise.runtime.checkpoint.manifest import MANIFEST, seal
from headwise.text.files.sources import count_of


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="model folder whose files you changed on purpose")


def run(options: argparse.Namespace) -> None:
    """Write the checksums again, after a file was changed on purpose."""
    folder = folder_of(options.model)
    if not any((folder / name).is_file() for name in (CONFIG, ADAPTER)):
        raise UserError(f"{folder}: has no {CONFIG}, so it is no model folder; give the folder that holds it")
    names = seal(folder, again=True)
    print(f"{folder / MANIFEST}: digests of {count_of(len(names), 'file')} ({', '.join(names)})", file=sys.stderr)
