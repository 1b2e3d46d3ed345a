"""Seeing inside: `inspect` writes what a model did with one text, `explore` serves a page to try things on."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import out_file, output
from sightline.cli.options import (
    TRANSLATES,
    decode_options,
    decode_overrides,
    language_options,
    load_model,
    model_options,
    whole,
)
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.inspect.alignment import AlignmentHead
    from sightline.inspect.record import AttentionRecord, Trace

FORMATS = ("html", "png", "svg", "pdf", "text", "json")
ENDINGS = {".htm": "html", ".txt": "text"} | {f".{name}": name for name in FORMATS if name != "text"}
PICTURES = ("png", "svg", "pdf")
PARTS = ("cross", "encoder", "decoder")


def add(commands: Any) -> None:
    """Register the commands of this module."""
    _inspect_options(commands)
    _explore_options(commands)


def _inspect_options(commands: Any) -> None:
    parser = commands.add_parser("inspect", help="show what a model looks at while it translates a text")
    model_options(parser, what=TRANSLATES)
    parser.add_argument("text", metavar="TEXT", help="one sentence to translate; - reads it from standard input")
    where = "file to write (default: attention.html, .png, .svg or .pdf; text and json to standard output)"
    parser.add_argument("-o", "--output", type=out_file, default="", metavar="FILE", help=where)
    style = "html: a page to explore; png, svg, pdf: a picture of one layer; text: the same in the terminal; json: all "
    style += "numbers (default: as the output file ends, else html)"
    parser.add_argument("--format", choices=FORMATS, default="", help=style)
    parser.add_argument("--target", metavar="TEXT", help="look at this translation (default: the model's own)")
    parser.add_argument("--prefix", default="", help="what the model's own translation must begin with")
    group = parser.add_argument_group("what pictures and text show")
    group.add_argument("--part", choices=PARTS, default="cross", help="which attention (default: %(default)s)")
    group.add_argument("--layer", type=int, default=-1, metavar="N", help="from 0; -1 is the last (default)")
    group.add_argument("--head", type=whole(0), metavar="N", help="from 0 (default: their mean, and each beside it)")
    language_options(parser)
    decode_options(parser, without=("n_best", "draft_length", "batch_tokens"))
    parser.set_defaults(run=run_inspect)


def run_inspect(options: argparse.Namespace) -> None:
    """Translate one text and write down what the model looked at."""
    style = format_of(options)
    text = sys.stdin.read() if options.text == "-" else options.text
    model = load_model(options)
    overrides = decode_overrides(options, model.decode_config) | {"prefix": options.prefix}
    if style in ("html", "json"):
        record = model.attend(text, options.target, **overrides)
        trace = model.trace(text, options.target, **overrides)
        _write_all(options, style, record, trace, model.known_alignment_head)
    else:
        heads = None if options.head is None else [options.head]
        record = model.attend(text, options.target, {options.part: [options.layer]}, heads, **overrides)
        _draw(options, style, record)


def format_of(options: argparse.Namespace) -> str:
    """The format asked for, or that of the output file's ending; `UserError` where they contradict each other."""
    ending = Path(options.output).suffix.lower()
    by_ending = ENDINGS.get(ending, "")
    if ending and not by_ending and not options.format:
        raise UserError(f"-o {options.output}: files end in {', '.join(ENDINGS)}; for another name give --format")
    if options.format and by_ending not in ("", options.format):
        raise UserError(f"-o {options.output}: ends as {by_ending} does, but --format is {options.format}")
    style = options.format or by_ending or "html"
    if options.output == "-" and style in PICTURES:
        raise UserError(f"-o -: a picture ({style}) is written into a file; name one")
    return style


def _write_all(
    options: argparse.Namespace,
    style: str,
    record: "AttentionRecord",
    trace: "Trace",
    aligns: "AlignmentHead | None",
) -> None:
    from sightline.inspect.page.contents import page_contents, plain_contents
    from sightline.inspect.page.document import page

    name = Path(options.model).name
    if style == "json":
        _write(options.output or "-", json.dumps(plain_contents(record, trace, name), ensure_ascii=False) + "\n")
    else:
        contents = page_contents(record, trace, name, aligns)
        _write(options.output or "attention.html", page([contents], f"Sightline: {record.text}"))


def _draw(options: argparse.Namespace, style: str, record: "AttentionRecord") -> None:
    from sightline.inspect.picture import save_attention
    from sightline.inspect.terminal import heat_map

    found = [(number, layer) for number, layer in enumerate(getattr(record, options.part)) if layer is not None]
    if not found:
        raise UserError(f"--part {options.part}: this model has no such attention")
    number, weights = found[0]
    queries = record.src_pieces if options.part == "encoder" else record.tgt_pieces
    keys = ["<s>", *record.tgt_pieces[:-1]] if options.part == "decoder" else record.src_pieces
    head = "" if options.head is None else f", head {options.head}"
    title = f"{options.part} attention, layer {number}{head}: {record.translation}"
    if style == "text":
        width = shutil.get_terminal_size().columns
        _write(options.output or "-", f"{title}\n{heat_map(weights.mean(axis=0), queries, keys, width)}\n")
        return
    path = Path(options.output or f"attention.{style}")
    names = ("source", "source") if options.part == "encoder" else ("translation", "source")
    names = ("writes", "reads") if options.part == "decoder" else names
    _check_folder(path)
    boxes = save_attention(weights, queries, keys, path, title, names, style)
    print(path, *([boxes] if boxes else []), sep="\n", file=sys.stderr)


def _check_folder(path: Path) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UserError(f"-o {path}: {'is a folder' if path.is_dir() else 'its folder does not exist'}; name a file")


def _write(path: str, text: str) -> None:
    with output(path) as file:
        file.write(text)
    if path != "-":
        print(path, file=sys.stderr)


def _explore_options(commands: Any) -> None:
    parser = commands.add_parser("explore", help="serve a page to type sentences on and see what the model does")
    model_options(parser, what=TRANSLATES)
    parser.add_argument("--against", metavar="MODEL", help="another model, shown beside it")
    parser.add_argument("--port", type=int, default=8000, help="0 is any that is free (default: %(default)s)")
    host = "address to answer at; anybody who reaches another one than this computer's own may use the model "
    parser.add_argument("--host", default="127.0.0.1", help=host + "(default: %(default)s)")
    language_options(parser)
    parser.set_defaults(run=run_explore)


def run_explore(options: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from sightline.inspect.explorer.answers import ShownModel
    from sightline.inspect.explorer.server import ExplorerServer

    paths = [options.model, *([options.against] if options.against else [])]
    models = [ShownModel(Path(path).name, load_model(options, path)) for path in paths]
    with ExplorerServer(models, options.host, options.port) as server:
        print(f"{server.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
        server.serve_forever()
