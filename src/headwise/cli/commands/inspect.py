"""Example: headwise inspect runs/ende "A dog runs." -o attention.html"""

import argparse
import json
import os
import shlex
import shutil
import sys
from itertools import count
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from headwise.cli.files import output
from headwise.cli.generation import GENERATION
from headwise.cli.loading import model_of
from headwise.cli.options import (
    ANY_MODEL,
    DECODING,
    decode_options,
    decode_overrides,
    language_options,
    model_option,
    whole_number,
)
from headwise.cli.rules import FlagRule, out_file
from headwise.errors import UserError
from headwise.evaluate.pages.document import inspection_page
from headwise.view.alignment import AlignmentHead
from headwise.view.page.contents import page_contents, plain_contents
from headwise.view.patches import over_patches, patch_map, save_patches
from headwise.view.picture import save_attention
from headwise.view.record import ATTENTIONS, AttentionRecord, Patches, Trace, WalkRecord
from headwise.view.terminal import heat_map

FORMATS = ("html", "png", "svg", "pdf", "text", "json")
ENDINGS = {".htm": "html", ".txt": "text"} | {f".{name}": name for name in FORMATS if name != "text"}
PICTURES = ("png", "svg", "pdf")
PARTS = ("cross", "encoder", "decoder")  # the default is the first that the model has
NAMES = {"encoder": ("source", "source"), "decoder": ("writes", "reads"), "cross": ("translation", "source")}
MARGIN, CELL = 16, 2  # columns of the terminal beside the weights, and of each weight
STEPS_IN_PICTURE, STEPS_IN_PAGE = 60, 300  # time steps of a sound that are shown
FOR_PAIRS = ("prefix", "target_language")
FOR_WRITERS = ("translation", "source_language", *DECODING)
ONLY_FOR_PAIRS = tuple(name for name in DECODING if name not in (*GENERATION, "sample", "stop", "compute"))


def format_of(options: argparse.Namespace) -> str:
    """The requested format, or that of the output file's ending; `UserError` if they contradict each other."""
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


RULES = (
    FlagRule(
        ("part", "layer", "head"),
        lambda o: format_of(o) in ("html", "json"),
        "is for pictures and text (-o FILE.png, --format text): a page, like json, has every layer and head",
    ),
    FlagRule(
        ("full_walk",),
        lambda o: format_of(o) != "html",
        "is for pages (-o FILE.html): other formats have no view Walk",
    ),
    FlagRule(
        ("prefix", *(name for name in DECODING if name != "max_source_length")),
        lambda o: o.translation is not None,
        "does not go with --translation: nothing is searched for where the output is given",
    ),
)

COMMON = (
    *("--output", "--format", "--translation", "--part", "--layer", "--head", "--prefix", "--source-language"),
    *("--target-language", "--device"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, f"{ANY_MODEL}; one with attention")
    text = "a sentence, or the file of a picture or a sound; - reads a sentence from standard input"
    parser.add_argument("text", metavar="TEXT", help=text)
    where = "output file (default: attention.html, or attention-2.html if that exists, and so on; text and json are "
    where += "printed)"
    parser.add_argument("-o", "--output", type=out_file, default="", metavar="FILE", help=where)
    style = "html: an interactive page; png, svg, pdf: a picture of one layer; text: the same in the terminal; json: "
    style += "all numbers (default: by the ending of the output file, else html)"
    parser.add_argument("--format", choices=FORMATS, default="", metavar="NAME", help=style)
    translation = "show this translation, transcript or caption instead of the model's own"
    parser.add_argument("--translation", metavar="TEXT", help=translation)
    prefix = "text that the model's output must begin with"
    parser.add_argument("--prefix", default="", metavar="TEXT", help=prefix)
    full = "page: include every layer and head in the view Walk, however large the file becomes (default: as many as "
    full += "fit into about a megabyte)"
    parser.add_argument("--full-walk", action="store_true", help=full)
    group = parser.add_argument_group("pictures and text")
    part = "cross, encoder, decoder: which attention (default: the first of them that the model has)"
    group.add_argument("--part", choices=PARTS, default="", metavar="NAME", help=part)
    layer = "layer, from 0; -1 is the last (default: %(default)s)"
    group.add_argument("--layer", type=int, default=-1, metavar="N", help=layer)
    group.add_argument(
        "--head", type=whole_number(0), metavar="N", help="head, from 0 (default: all heads and their mean)"
    )
    query = "for pictures: attention of the class token, or the mean over all patches (default: %(default)s)"
    group.add_argument("--query", choices=("class", "mean"), default="class", help=query)
    language_options(parser)
    decode_options(parser, without=("n_best", "draft_length", "batch_tokens"))


def run(options: argparse.Namespace) -> None:
    """Run the model on one input and write its attention."""
    style, model = format_of(options), model_of(options)
    _ = model.attend  # a `UserError` for a model without attention
    text = _input_of(options.text, model)
    pairs = model.reads == "pairs"
    settings = _pair_settings(options, model) if pairs else _single_settings(options, model, style)
    if style in ("html", "json"):
        record, trace = model.look_inside(text, **settings)
        walks = _walks(model, text, settings, options.full_walk) if style == "html" else None
        return _write_all(options, style, record, trace, getattr(model, "known_alignment_head", None), walks)
    heads = None if options.head is None else [options.head]
    layers: Any = {options.part: [options.layer]} if options.part else [options.layer]
    record = model.attend(text, layers=layers, heads=heads, **settings)
    part = options.part or next((part for part in PARTS if any(w is not None for w in getattr(record, part))), PARTS[0])
    _draw(options, style, part, record)


def _input_of(text: str, model: Any) -> str:
    """The input; `UserError` if a model that reads text was given a file name."""
    if text == "-":
        return sys.stdin.read()
    if model.reads in ("picture", "sound"):
        return text
    exists, name = os.path.isfile(text), not any(map(str.isspace, text))
    kind = {"image": "a picture", "audio": "a sound"}.get((guess_type(text)[0] or "").partition("/")[0])
    if kind and (exists or name):
        raise UserError(
            f"{text}: {f'is {kind}' if exists else f'no such file (the name is that of {kind})'}, and this model reads "
            f"text; to look at this text itself: echo {shlex.quote(text)} | headwise inspect MODEL -"
        )
    if exists and Path(text).suffix:
        raise UserError(
            f"{text}: is a file, and inspect takes one sentence; write the sentence, or read it from the file: "
            f"headwise inspect MODEL - < {shlex.quote(text)}"
        )
    return text


def _pair_settings(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """The settings for a translation."""
    return {"tgt": options.translation, "prefix": options.prefix, **decode_overrides(options, model.decode_config)}


def _single_settings(options: argparse.Namespace, model: Any, style: str) -> dict[str, Any]:
    """The settings for a sound or a picture; `UserError` for one without a meaning there."""
    for name in (*FOR_PAIRS, *ONLY_FOR_PAIRS) if model.writes else (*FOR_PAIRS, *FOR_WRITERS):
        if name in options.flags:
            raise UserError(f"{options.flags[name]} is for models that translate; this one reads a {model.reads}")
    if not model.writes:
        return {}
    own = {"target": options.translation, **decode_overrides(options, model.generation.settings)}
    if model.reads == "picture":
        return own
    narrow = max(1, (shutil.get_terminal_size().columns - MARGIN) // CELL)
    n_times = {"text": narrow, "html": STEPS_IN_PAGE, "json": 0}.get(style, STEPS_IN_PICTURE)
    return {**own, "language": options.source_language, "n_times": n_times}


def _walks(model: Any, text: str, settings: dict[str, Any], required: bool) -> WalkRecord | None:
    """The walks; None, or with `required` a `UserError`, for networks and installations without."""
    try:
        return model.walks(text, **settings)
    except UserError:
        if required:
            raise
        return None


def _write_all(
    options: argparse.Namespace,
    style: str,
    record: AttentionRecord,
    trace: Trace,
    aligns: AlignmentHead | None,
    walks: WalkRecord | None,
) -> None:
    name = Path(options.model).name
    if style == "json":
        _write(options.output or "-", json.dumps(plain_contents(record, trace, name), ensure_ascii=False) + "\n")
    else:
        contents = page_contents(record, trace, name, aligns, walks, options.full_walk)
        page = inspection_page([contents], f"Headwise: {record.text}")
        _write(options.output or unused_name("attention.html"), page)


def _draw(options: argparse.Namespace, style: str, part: str, record: AttentionRecord) -> None:
    found = [(number, layer) for number, layer in enumerate(getattr(record, part)) if layer is not None]
    if not found:
        raise UserError(f"--part {part}: this model has no such attention")
    number, weights = found[0]
    head = "" if options.head is None else f", head {options.head}"
    title = f"{ATTENTIONS[part]}, layer {number}{head}: {record.translation or record.text}"
    if style == "text":
        return _write(options.output or "-", f"{title}\n{_as_text(record, part, weights, _query(options, part))}\n")
    path, of, boxes = Path(options.output or unused_name(f"attention.{style}")), record.src.of, ""
    _check_folder(path)
    if isinstance(of, Patches) and part != "decoder":
        save_patches(over_patches(weights, of, _query(options, part)), of, path, title, style)
    else:
        axes = (record.queries(part).drawn, record.keys(part).drawn)
        boxes = save_attention(weights, *axes, path, title, NAMES[part], style)
    print(path, *([boxes] if boxes else []), sep="\n", file=sys.stderr)


def _query(options: argparse.Namespace, part: str) -> str:
    """The query of a picture; for a caption the mean, because none of its words stands for the whole."""
    return options.query if part == "encoder" else "mean"


def _as_text(record: AttentionRecord, part: str, weights: Any, query: str) -> str:
    width, of = shutil.get_terminal_size().columns, record.src.of
    if isinstance(of, Patches) and part != "decoder":
        return patch_map(over_patches(weights, of, query), width)
    return heat_map(weights.mean(axis=0), record.queries(part).drawn, record.keys(part).drawn, width)


def unused_name(name: str) -> str:
    """The name, or the first numbered one that no file has, so that a default name never overwrites a file."""
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
