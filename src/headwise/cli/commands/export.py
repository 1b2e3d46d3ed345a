"""Example: headwise export runs/ende --to ctranslate2 runs/ende-ct2 --int8"""

import argparse
import sys
from pathlib import Path

from headwise.cli.options import file_option
from headwise.data.corpus import read_lines
from headwise.errors import UserError
from headwise.export.web.page import export_page
from headwise.models.load import translation_folder

NEEDS = {"export_formats": lambda o: o.to != "web"}


def add_options(parser: argparse.ArgumentParser) -> None:
    what = "translation model: a folder of a model trained here; for hf and ctranslate2 also a Hugging Face folder"
    parser.add_argument("model", metavar="MODEL", help=f"{what}, or one written by `headwise import`")
    formats = "hf: for MarianMTModel (with pre-norm: Pegasus); ctranslate2; onnx: encoder and decoder with cache; "
    formats += "web: one HTML file that translates in any browser without a network"
    parser.add_argument("--to", choices=("hf", "ctranslate2", "onnx", "web"), required=True, help=formats)
    parser.add_argument("out", metavar="OUT", help="new folder to write, or file for web")
    int8 = "int8 weights, for ctranslate2 and onnx: a third of the size, with slightly different translations"
    parser.add_argument("--int8", action="store_true", help=int8)
    file_option(parser, "--text", "lines to compare translations on (default: a few texts in the model's vocabulary)")


def run(options: argparse.Namespace) -> None:
    """Export, compare translations, and print the comparison."""
    texts = list(read_lines(options.text)) if options.text else []
    if options.to == "web":
        if options.int8 or texts:
            raise UserError("--int8 and --text are not for --to web: a page is always int8, and is not compared")
        report = export_page(translation_folder(options.model), Path(options.out))
    else:
        export_model = options.modules["export_formats"].export_model
        report = export_model(options.model, options.to, options.out, options.int8, texts)
    print(f"{options.out}: {report}", file=sys.stderr)
