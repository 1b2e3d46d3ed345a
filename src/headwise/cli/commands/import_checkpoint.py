"""Example: headwise import hf:Helsinki-NLP/opus-mt-en-de runs/opus"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import UserError
from headwise.runtime.checkpoint.hub import folder_of
from headwise.runtime.checkpoint.layout import CONFIG, is_family, read_json
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.formats.ctranslate2_file import ctranslate2_kind
from headwise.runtime.formats.ctranslate2_whisper import WHISPER, open_whisper
from headwise.runtime.formats.gguf_file import is_gguf
from headwise.runtime.formats.gguf_model import open_gguf
from headwise.runtime.formats.other_formats import is_argos, other_format

if TYPE_CHECKING:
    from headwise.pytorch.checkpoint.ctranslate2_folder import ForeignModel


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "model: a Hugging Face folder, OWNER/NAME from the local cache, or hf:OWNER/NAME; a translation model of "
    text += "CTranslate2 or Marian (.npz), with vocabulary and tokenizer; an encoder, decoder or Whisper of "
    text += (
        "CTranslate2, with tokenizer.json; a package of Argos Translate (.argosmodel); or a GGUF file of LLaMA or Qwen"
    )
    parser.add_argument("source", metavar="MODEL", help=text)
    keys = (
        "unknown keys of config.json to ignore, separated by commas; without it they are errors, and with it results "
    )
    keys += "may differ from those of other software (default: none)"
    parser.add_argument("--ignore-keys", type=lambda text: text.split(","), default=(), metavar="KEYS", help=keys)
    parser.add_argument("out", metavar="OUT", help="new model folder to write")


def run(options: argparse.Namespace) -> None:
    """Convert a checkpoint and print the kind of model."""
    from headwise.pytorch.checkpoint.argos import open_argos
    from headwise.pytorch.checkpoint.ctranslate2_families import SIDES, open_encoder_or_decoder
    from headwise.pytorch.checkpoint.ctranslate2_folder import read_ctranslate2
    from headwise.pytorch.checkpoint.marian import marian_file, read_marian

    folder = folder_of(options.source)
    if is_argos(folder):
        with open_argos(folder) as model:
            return _write(options, model)
    kind = ctranslate2_kind(folder)
    if kind == WHISPER:
        with open_whisper(folder) as converted:
            return _import(options, converted)
    if kind in SIDES:
        with open_encoder_or_decoder(folder) as converted:
            return _import(options, converted)
    if kind:
        return _write(options, read_ctranslate2(folder))
    if is_gguf(folder):
        with open_gguf(folder) as converted:
            return _import(options, converted)
    if marian := marian_file(folder):
        return _write(options, read_marian(marian))
    if found := other_format(folder):
        raise UserError(f"{options.source}: {found}")
    if not is_family(folder):
        raise UserError(f"{options.source}: is no folder in the Hugging Face layout (config.json with a model_type)")
    if read_json(folder / CONFIG).get("model_type") == "xlnet":
        raise UserError(f"{options.source}: an XLNet stays in its layout; all commands read the folder as it is")
    _import(options, folder)


def _import(options: argparse.Namespace, folder: Path) -> None:
    from headwise.pytorch.checkpoint.imported import write_imported

    model = read_folder(folder, ignore_keys=options.ignore_keys)
    write_imported(Path(options.out), model)
    _report(options.out, model.config.family, sum(parameter.numel() for parameter in model.network.parameters()))


def _write(options: argparse.Namespace, model: "ForeignModel") -> None:
    from headwise.pytorch.checkpoint.imported import write_foreign

    if options.ignore_keys:
        raise UserError("--ignore-keys is for folders in the Hugging Face layout")
    write_foreign(Path(options.out), model)
    _report(options.out, model.config.family, sum(tensor.numel() for tensor in model.tensors.values()))


def _report(out: str, family: str, parameters: int) -> None:
    print(f"{out}: {family}, {parameters:,} parameters")
