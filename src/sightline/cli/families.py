"""Checkpoints of the Transformer's families: `import` makes a model directory of one."""

import argparse
from pathlib import Path
from typing import Any

from sightline.errors import UserError


def add(commands: Any) -> None:
    """Register the commands of this module."""
    parser = commands.add_parser("import", help="make a model directory of a folder in the Hugging Face layout")
    parser.add_argument("source", metavar="HF_DIR", help="the folder, OWNER/NAME in the hub's cache, or hf:OWNER/NAME")
    parser.add_argument("out", metavar="OUT", help="model directory to write, new")
    parser.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> None:
    """Read a checkpoint, write it as ours, and say what it is."""
    import torch

    from sightline.checkpoint.folder import read_family, write_family
    from sightline.checkpoint.hub import folder_of
    from sightline.checkpoint.layout import is_family
    from sightline.checkpoint.xlnet import is_xlnet

    folder = folder_of(options.source)
    if is_xlnet(folder):
        raise UserError(f"{options.source}: an XLNet stays in its layout; all commands read the folder as it is")
    if not is_family(folder):
        raise UserError(f"{options.source}: is no folder in the Hugging Face layout (config.json with a model_type)")
    model = read_family(folder, torch.device("cpu"))
    write_family(Path(options.out), model)
    print(f"{options.out}: {model.config.family}, {model.info()['parameters']:,} parameters")
