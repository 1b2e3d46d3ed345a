"""Seeing inside: `inspect` writes what a model did with one text, `explore` serves a page to try things on."""

import argparse
import json
import os
import shlex
import shutil
import sys
from dataclasses import fields
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import out_file, output
from sightline.cli.options import (
    EITHER,
    decode_options,
    decode_overrides,
    language_options,
    load_as_asked,
    model_options,
    whole,
)
from sightline.config.settings import SearchSettings
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.inspect.alignment import AlignmentHead
    from sightline.inspect.record import AttentionRecord, Trace

LOOKED = f"{EITHER}, of a network with attention: that translates, or reads a text, a picture or a sound"
FORMATS = ("html", "png", "svg", "pdf", "text", "json")
ENDINGS = {".htm": "html", ".txt": "text"} | {f".{name}": name for name in FORMATS if name != "text"}
PICTURES = ("png", "svg", "pdf")
PARTS = ("cross", "encoder", "decoder")  # the first that a model has is drawn where nobody says which
NAMES = {"encoder": ("source", "source"), "decoder": ("writes", "reads"), "cross": ("translation", "source")}
BESIDE, CELL = 16, 2  # columns of the terminal beside the weights, and of each
DRAWN = 60  # stretches of a sound in a picture, which are to be seen
OF_PAIRS = ("prefix", "target_language")
OF_WRITERS = ("target", "source_language", *(field.name for field in fields(SearchSettings)))


def load_looked(options: argparse.Namespace, path: str) -> Any:
    """A model to look into; `UserError` for one that cannot be, with what it can do."""
    model = load_as_asked(options, path)
    _ = model.attend
    return model


def add(commands: Any) -> None:
    """Register the commands of this module."""
    _inspect_options(commands)
    _explore_options(commands)


def _inspect_options(commands: Any) -> None:
    parser = commands.add_parser("inspect", help="show what a model looks at in a text, picture or sound")
    model_options(parser, what=LOOKED)
    parser.add_argument(
        "text", metavar="TEXT", help="one sentence; - reads it from standard input; the file of a picture or a sound"
    )
    where = "file to write (default: attention.html, .png, .svg or .pdf, numbered if it exists already: "
    where += "attention-2.html; text and json go to standard output)"
    parser.add_argument("-o", "--output", type=out_file, default="", metavar="FILE", help=where)
    style = "html: a page to explore; png, svg, pdf: a picture of one layer; text: the same in the terminal; json: all "
    style += "numbers (default: as the output file ends, else html)"
    parser.add_argument("--format", choices=FORMATS, default="", help=style)
    target = "look at this translation, transcript of a sound or caption (default: the model's own)"
    parser.add_argument("--target", metavar="TEXT", help=target)
    parser.add_argument("--prefix", default="", help="what the model's own translation must begin with")
    group = parser.add_argument_group("what pictures and text show")
    part = "which attention (default: cross, or the only one there is)"
    group.add_argument("--part", choices=PARTS, default="", help=part)
    group.add_argument("--layer", type=int, default=-1, metavar="N", help="from 0; -1 is the last (default)")
    group.add_argument("--head", type=whole(0), metavar="N", help="from 0 (default: their mean, and each beside it)")
    query = "of a picture: who looks (default: class, the token that stands for the whole)"
    group.add_argument("--query", choices=("class", "mean"), default="class", help=query)
    language_options(parser)
    decode_options(parser, without=("n_best", "draft_length", "batch_tokens"))
    parser.set_defaults(run=run_inspect)


def run_inspect(options: argparse.Namespace) -> None:
    """Let a model read or translate one text, picture or sound, and write down what it looked at."""
    from sightline.inspect.recording import attentions
    from sightline.models.looking import LookVerbs

    style, model = format_of(options), load_looked(options, options.model)
    text = _given(options.text, model)
    settings = _of_one(options, model, style) if isinstance(model, LookVerbs) else _of_pair(options, model)
    if style in ("html", "json"):
        record, trace = model.look_inside(text, **settings)
        return _write_all(options, style, record, trace, getattr(model, "known_alignment_head", None))
    heads = None if options.head is None else [options.head]
    stacks = attentions(model.network)
    part = options.part or next((part for part in PARTS if stacks[part]), PARTS[0])
    _draw(options, style, part, model.attend(text, layers={part: [options.layer]}, heads=heads, **settings))


def _given(text: str, model: Any) -> str:
    """What to look at; `UserError` where a model that reads a text was given the name of a file."""
    from sightline.models.looking import LookVerbs

    if text == "-":
        return sys.stdin.read()
    if isinstance(model, LookVerbs) and model.reads in ("picture", "sound"):
        return text
    exists, name = os.path.isfile(text), not any(map(str.isspace, text))
    kind = {"image": "a picture", "audio": "a sound"}.get((guess_type(text)[0] or "").partition("/")[0])
    if kind and (exists or name):
        raise UserError(
            f"{text}: {f'is {kind}' if exists else f'no such file (the name is that of {kind})'}, and this model reads "
            f"text; to look at this text itself: echo {shlex.quote(text)} | sightline inspect MODEL -"
        )
    if exists and Path(text).suffix:
        raise UserError(
            f"{text}: is a file, and inspect takes one sentence; write the sentence, or read it from the file: "
            f"sightline inspect MODEL - < {shlex.quote(text)}"
        )
    return text


def _of_pair(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """What was said of a translation."""
    return {"tgt": options.target, "prefix": options.prefix, **decode_overrides(options, model.decode_config)}


def _of_one(options: argparse.Namespace, model: Any, style: str) -> dict[str, Any]:
    """What was said of a sound or a picture; `UserError` for what means nothing for what the model reads."""
    for name in OF_PAIRS if model.tells else (*OF_PAIRS, *OF_WRITERS):
        if name in options.flags:
            raise UserError(f"{options.flags[name]} is for models that translate; this one reads a {model.reads}")
    if not model.tells:
        return {}
    if model.reads == "picture":
        return {"target": options.target, **decode_overrides(options, model.generation)}
    narrow = max(1, (shutil.get_terminal_size().columns - BESIDE) // CELL)
    n_times = {"text": narrow, "html": 300, "json": 0}.get(style, DRAWN)
    own = decode_overrides(options, model.generation)
    return {"target": options.target, "language": options.source_language, "n_times": n_times, **own}


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
    from sightline.report.document import page

    name = Path(options.model).name
    if style == "json":
        _write(options.output or "-", json.dumps(plain_contents(record, trace, name), ensure_ascii=False) + "\n")
    else:
        contents = page_contents(record, trace, name, aligns)
        _write(options.output or unused("attention.html"), page([contents], f"Sightline: {record.text}"))


def _draw(options: argparse.Namespace, style: str, part: str, record: "AttentionRecord") -> None:
    from sightline.inspect.patches import over_patches, save_patches
    from sightline.inspect.picture import save_attention
    from sightline.inspect.record import Patches

    found = [(number, layer) for number, layer in enumerate(getattr(record, part)) if layer is not None]
    if not found:
        raise UserError(f"--part {part}: this model has no such attention")
    number, weights = found[0]
    head = "" if options.head is None else f", head {options.head}"
    title = f"{part} attention, layer {number}{head}: {record.translation or record.text}"
    if style == "text":
        return _write(options.output or "-", f"{title}\n{_as_text(record, part, weights, _query(options, part))}\n")
    path, of, boxes = Path(options.output or unused(f"attention.{style}")), record.src.of, ""
    _check_folder(path)
    if isinstance(of, Patches) and part != "decoder":
        save_patches(over_patches(weights, of, _query(options, part)), of, path, title, style)
    else:
        axes = (record.queries(part).drawn, record.keys(part).drawn)
        boxes = save_attention(weights, *axes, path, title, NAMES[part], style)
    print(path, *([boxes] if boxes else []), sep="\n", file=sys.stderr)


def _query(options: argparse.Namespace, part: str) -> str:
    """Who looks at a picture; a caption all of it, for none of its words stands for the whole."""
    return options.query if part == "encoder" else "mean"


def _as_text(record: "AttentionRecord", part: str, weights: Any, query: str) -> str:
    from sightline.inspect.patches import over_patches, patch_map
    from sightline.inspect.record import Patches
    from sightline.inspect.terminal import heat_map

    width, of = shutil.get_terminal_size().columns, record.src.of
    if isinstance(of, Patches) and part != "decoder":
        return patch_map(over_patches(weights, of, query), width)
    return heat_map(weights.mean(axis=0), record.queries(part).drawn, record.keys(part).drawn, width)


def unused(name: str) -> str:
    """The name, or the first numbered one that no file has: a file that nobody named is never overwritten."""
    path = Path(name)
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return str(path if not path.exists() else next(other for other in numbered if not other.exists()))


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
    model_options(parser, what=LOOKED)
    parser.add_argument("--against", metavar="MODEL", help="another model, shown beside it")
    parser.add_argument("--port", type=int, default=8000, help="0 is any that is free (default: %(default)s)")
    host = "address to answer at; anybody who reaches another one than this computer's own may use the model "
    parser.add_argument("--host", default="127.0.0.1", help=host + "(default: %(default)s)")
    language_options(parser)
    parser.set_defaults(run=run_explore)


def run_explore(options: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from sightline.serve.explorer.answers import ShownModel
    from sightline.serve.explorer.server import ExplorerServer

    paths = [options.model, *([options.against] if options.against else [])]
    models = [ShownModel(Path(path).name, load_looked(options, path)) for path in paths]
    with ExplorerServer(models, options.host, options.port) as server:
        print(f"{server.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
        server.serve_forever()
