"""Checkpoints of the Transformer's families: `import` makes a model directory of one, `join` a captioner of two."""

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
    parser = commands.add_parser("join", help="make one captioner of a ViT or DeiT and a GPT-2, to be trained")
    parser.add_argument("looks", metavar="VIT", help="a folder, OWNER/NAME in the hub's cache, or hf:OWNER/NAME")
    parser.add_argument("writes", metavar="GPT2", help="the same")
    parser.add_argument("out", metavar="OUT", help="folder to write, new; train --task caption --init takes it")
    parser.set_defaults(run=run_join)


def run_import(options: argparse.Namespace) -> None:
    """Read a checkpoint, write it as ours, and say what it is."""
    from sightline.checkpoint.hub import folder_of
    from sightline.checkpoint.imported import write_imported
    from sightline.checkpoint.layout import CONFIG, is_family, read_json
    from sightline.checkpoint.read import read_folder

    folder = folder_of(options.source)
    if not is_family(folder):
        raise UserError(f"{options.source}: is no folder in the Hugging Face layout (config.json with a model_type)")
    if read_json(folder / CONFIG).get("model_type") == "xlnet":
        raise UserError(f"{options.source}: an XLNet stays in its layout; all commands read the folder as it is")
    model = read_folder(folder)
    write_imported(Path(options.out), model)
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    print(f"{options.out}: {model.config.family}, {parameters:,} parameters")


def run_join(options: argparse.Namespace) -> None:
    """Write the captioner, and say what of it nobody has trained."""
    from sightline.checkpoint.hub import folder_of
    from sightline.checkpoint.joined import write_joined

    write_joined(folder_of(options.looks), folder_of(options.writes), Path(options.out))
    print(f"{options.out}: a captioner, whose attention to a picture is random until it is trained")
