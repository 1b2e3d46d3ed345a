"""Example: headwise import hf:Helsinki-NLP/opus-mt-en-de runs/opus"""

import argparse
from pathlib import Path

from headwise.checkpoint.hub import folder_of
from headwise.checkpoint.imported import write_imported
from headwise.checkpoint.layout import CONFIG, is_family, read_json
from headwise.checkpoint.with_torch import read_any
from headwise.errors import UserError


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "model: a Hugging Face folder, OWNER/NAME from the local cache, or hf:OWNER/NAME"
    parser.add_argument("source", metavar="HF_DIR", help=text)
    keys = (
        "unknown keys of config.json to ignore, separated by commas; without it they are errors, and with it results "
    )
    keys += "may differ from those of other software (default: none)"
    parser.add_argument("--ignore-keys", type=lambda text: text.split(","), default=(), metavar="KEYS", help=keys)
    parser.add_argument("out", metavar="OUT", help="new model folder to write")


def run(options: argparse.Namespace) -> None:
    """Convert a checkpoint and print what it is."""
    folder = folder_of(options.source)
    if not is_family(folder):
        raise UserError(f"{options.source}: is no folder in the Hugging Face layout (config.json with a model_type)")
    if read_json(folder / CONFIG).get("model_type") == "xlnet":
        raise UserError(f"{options.source}: an XLNet stays in its layout; all commands read the folder as it is")
    model = read_any(folder, ignore_keys=options.ignore_keys)
    write_imported(Path(options.out), model)
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    print(f"{options.out}: {model.config.family}, {parameters:,} parameters")
