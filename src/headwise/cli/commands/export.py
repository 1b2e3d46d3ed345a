"""Example: headwise export runs/ende --to ctranslate2 runs/ende-ct2 --compute int8"""

import argparse
import sys
from pathlib import Path

from headwise.cli.options import TRAINED_HERE, file_option
from headwise.cli.parallel_texts import parallel_texts, source_text
from headwise.errors import UserError
from headwise.models.load import translation_folder
from headwise.serve.web.page import export_page


def add_options(parser: argparse.ArgumentParser) -> None:
    what = f"translation model, for web also a language model: a {TRAINED_HERE}; for hf and ctranslate2 also a Hugging "
    parser.add_argument("model", metavar="MODEL", help=f"{what}Face folder, or one written by `headwise import`")
    formats = (
        "hf: for transformers, as MarianMTModel (with pre-norm: Pegasus); ctranslate2; onnx: encoder, and decoder "
    )
    formats += "with cache; web: one HTML file that translates or continues texts in any browser, offline"
    parser.add_argument("--to", choices=("hf", "ctranslate2", "onnx", "web"), required=True, help=formats)
    parser.add_argument("out", metavar="OUT", help="new folder to write, or file for web")
    others = "further models for the same web page, which has a menu of them"
    parser.add_argument("--with", nargs="+", action="extend", default=[], dest="others", metavar="MODEL", help=others)
    compute = "float32, int8: weight precision of ctranslate2 and onnx; int8 is a third of the size, with slightly "
    compute += "different translations; a web page is always int8 (default: %(default)s)"
    parser.add_argument("--compute", choices=("float32", "int8"), default="float32", metavar="NAME", help=compute)
    text = "text file, or file of pairs; its lines are translated before and after export, and compared (default: a "
    text += "few short texts)"
    file_option(parser, "--text", text)


def run(options: argparse.Namespace) -> None:
    """Export, compare translations, and print the comparison."""
    texts = parallel_texts([source_text(options.text, "--text")])[0] if options.text else []
    if options.others and options.to != "web":
        raise UserError("--with is for --to web: the other formats have one model in a folder")
    if options.to == "web":
        if "compute" in options.flags or texts:
            raise UserError("--compute and --text are not for --to web: a page is always int8, and is not compared")
        folders = [translation_folder(path) for path in (options.model, *options.others)]
        report = export_page(folders, Path(options.out))
    else:
        from headwise.pytorch.export.run import export_model

        report = export_model(options.model, options.to, options.out, options.compute == "int8", texts)
    print(f"{options.out}: {report}", file=sys.stderr)
