"""`sightline translate`."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from itertools import tee
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, lines_of, not_too_long, out_file, output, progress
from sightline.cli.options import (
    EITHER,
    decode_options,
    decode_overrides,
    document_languages,
    ensemble_option,
    glossary_options,
    input_option,
    language_options,
    load_models,
    model_options,
    output_option,
    ray_option,
    workers_option,
)
from sightline.data.corpus import read_head
from sightline.localisation import is_document

if TYPE_CHECKING:
    from sightline.decode.translator import Translation

CHUNK_LINES = 1000  # translated together, where as many are there


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("translate", help="translate lines, or a document that translators work with")
    model_options(parser, what=EITHER)
    input_option(parser)
    ensemble_option(parser)
    output_option(parser)
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="jsonl adds scores and pieces")
    alignment = "write which source word each target word comes from, as i-j: to a file of its own, a line each, or "
    alignment += "with '-' into the output, behind ' ||| ' or in jsonl as 'alignment'"
    parser.add_argument("--alignment", type=out_file, default="", metavar="FILE", help=alignment)
    report = "of a document: write what was translated, doubtful ones first, as JSON lines"
    parser.add_argument("--report", type=out_file, default="", metavar="FILE.jsonl", help=report)
    parser.add_argument("--sentences", action="store_true", help="cut lines into sentences, translated one by one")
    lines = "translate the lines of a file as they are, whatever its type: tags and keys, too"
    parser.add_argument("--lines", action="store_true", help=lines)
    document_languages(parser)
    parser.add_argument("--prefix", default="", help="what every translation must begin with")
    draft = "guess ahead, for a quicker answer to single sentences, the same as with --beam-size 1: 'input', "
    draft += "a smaller model's directory, or a translation memory (a file as `sightline train` takes it)"
    parser.add_argument("--draft", type=in_file, default="", metavar="FROM", help=draft)
    glossary_options(parser)
    workers_option(parser)
    ray_option(parser)
    language_options(parser)
    n_best = "translations per line; in text output separated by tabs"
    decode_options(parser, n_best=n_best)
    parser.set_defaults(run=run_translate)


def run_translate(options: argparse.Namespace) -> None:
    """Translate; line in, line out, or a document unit by unit."""
    if is_document(options.input, options.sentences, options.lines):
        from sightline.cli.localisation import fill_document

        return fill_document(options)
    if not options.lines and os.path.isfile(options.input):
        from sightline.localisation.other_types import HEAD, refuse_by_content, refuse_by_name

        refuse_by_name(options.input)
        refuse_by_content(options.input, read_head(options.input, HEAD))
    model: Any = load_models(options, told=bool(options.alignment))
    overrides = decode_overrides(options, model.decode_config)
    apart = options.alignment not in ("", "-")
    with output(options.output) as file, output(options.alignment) if apart else nullcontext() as links_file:
        for found in _linked(model, options, overrides):
            for translation, links in found:
                file.write(format_translation(translation, options.format, None if apart else links) + "\n")
                if links_file:
                    links_file.write(f"{links}\n")
            file.flush()
    if "glossary" in overrides:
        print(overrides["glossary"].summary(), file=sys.stderr)


Linked = Iterable[tuple["Translation", str | None]]  # with word links, if they are asked for


def _linked(model: Any, options: argparse.Namespace, overrides: Mapping[str, Any]) -> Iterator[Linked]:
    """The translations of all lines; those of lines that arrive one by one as soon as no more are there."""
    from sightline.cli.arriving import arrives, arriving

    if not arrives(options.input) or options.workers > 1 or options.ray is not None:
        lines = lines_of(options.input, "translate")
        yield progress(_with_links(model, lines, options, overrides, options.workers, options.draft), options.input)
        return
    from sightline.decode.request import TooLarge

    done, draft = 0, getattr(model, "draft", str)(options.draft)  # made once
    for lines in arriving(sys.stdin.fileno(), CHUNK_LINES):
        short = not_too_long(lines, "standard input", done)
        try:
            yield list(_with_links(model, short, options, overrides, 1, draft))
        except TooLarge as error:
            raise TooLarge(done + error.index, error.why, "line") from None
        done += len(lines)


def _with_links(
    model: Any,
    lines: Iterable[str],
    options: argparse.Namespace,
    overrides: Mapping[str, Any],
    workers: int,
    draft: Any,
) -> Linked:
    asked = {"chunk_lines": CHUNK_LINES, "workers": workers, "draft": draft, **overrides}
    if not options.alignment:
        return ((translation, None) for translation in model.translate_lines(lines, options.prefix, **asked))
    from sightline.cli.attention import with_links

    lines, again = tee(lines)
    return with_links(model, again, model.translate_lines(lines, options.prefix, **asked), CHUNK_LINES)


def format_translation(translation: "Translation", style: str, links: str | None = None) -> str:
    """One line: a JSON object, or the text and its alternatives between tabs; with word links if there are any."""
    if style == "jsonl":
        alignment = {} if links is None else {"alignment": links}
        return json.dumps({**asdict(translation), **alignment}, ensure_ascii=False)
    texts = [translation.text, *(other.text for other in translation.alternatives)]
    line = "\t".join(texts) if len(texts) == 1 else "\t".join(text.replace("\t", " ") for text in texts)
    return line if links is None else f"{line} ||| {links}"
