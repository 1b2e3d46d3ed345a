"""`sightline export`: a translation model for other programs; `pack`: one for a quick start; `seal`: its manifest."""

import argparse
import sys
from pathlib import Path
from typing import Any

from sightline.cli.files import in_file
from sightline.errors import UserError


def add(commands: Any) -> None:
    """Register the commands."""
    _export_options(commands)
    _pack_options(commands)
    _seal_options(commands)


def _export_options(commands: Any) -> None:
    what = "write a translation model for transformers, CTranslate2, ONNX or a browser, and check that it does the same"
    parser = commands.add_parser("export", help=what)
    what = "model directory; for hf and ctranslate2 also a folder in the Hugging Face layout, or what `import` wrote"
    parser.add_argument("model", metavar="MODEL", help=what)
    formats = "hf: what MarianMTModel (or, norms first, Pegasus) loads; ctranslate2; onnx: encoder and cached decoder; "
    formats += "web: one HTML file that translates in any browser, without a network"
    parser.add_argument("--to", choices=("hf", "ctranslate2", "onnx", "web"), required=True, help=formats)
    parser.add_argument("out", metavar="OUT", help="folder to write, or file for web, which must not exist yet")
    int8 = "weights in int8, for ctranslate2 and onnx: a third of the size, and not quite the same translations"
    parser.add_argument("--int8", action="store_true", help=int8)
    text = "lines to compare translations on (default: a few texts of the model's own words)"
    parser.add_argument("--text", type=in_file, metavar="FILE", help=text)
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> None:
    """Write it, and say what was compared."""
    from sightline.data.corpus import read_lines
    from sightline.export.run import export_model

    texts = list(read_lines(options.text)) if options.text else []
    report = export_model(options.model, options.to, options.out, options.int8, texts)
    print(f"{options.out}: {report}", file=sys.stderr)


def _pack_options(commands: Any) -> None:
    what = "keep a translator's weights as the compiled library computes with them, for a quicker start of each process"
    parser = commands.add_parser("pack", help=what)
    parser.add_argument("model", metavar="MODEL", help="model directory; the packed weights are written into it")
    numbers = "numbers to compute with, a file each (default: what the model decodes with)"
    parser.add_argument("--compute", choices=("float32", "int8", "bfloat16"), default="", help=numbers)
    parser.set_defaults(run=run_pack)


def run_pack(options: argparse.Namespace) -> None:
    """Write the file, and say how large it is."""
    from sightline.checkpoint.packed import pack

    path = pack(options.model, options.compute)
    print(
        f"{path}: {path.stat().st_size / 2**20:,.1f} MiB; used as long as the weights stay as they are", file=sys.stderr
    )


def _seal_options(commands: Any) -> None:
    what = "write the digests of a model folder's files again, after you changed one of them on purpose"
    parser = commands.add_parser("seal", help=what)
    parser.add_argument("model", metavar="MODEL", help="model folder; its files are accepted as they are now")
    parser.set_defaults(run=run_seal)


def run_seal(options: argparse.Namespace) -> None:
    """Write the manifest, and say what it lists."""
    from sightline.checkpoint.layout import ADAPTER, CONFIG
    from sightline.checkpoint.manifest import MANIFEST, seal

    folder = Path(options.model)
    if not any((folder / name).is_file() for name in (CONFIG, ADAPTER)):
        raise UserError(f"{folder}: has no {CONFIG}, so it is no model folder; give the folder that holds it")
    names = seal(folder, again=True)
    print(f"{folder / MANIFEST}: digests of {len(names)} files ({', '.join(names)})", file=sys.stderr)
