"""`sightline translate`."""

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from itertools import tee
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, lines_of, out_file, output, progress
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
from sightline.localisation import is_document

if TYPE_CHECKING:
    from sightline.decode.translator import Translation


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
    if is_document(options.input, options.sentences):
        from sightline.cli.localisation import fill_document

        return fill_document(options)
    model: Any = load_models(options, told=bool(options.alignment))
    overrides = decode_overrides(options, model.decode_config)
    interactive = options.input == "-" and sys.stdin.isatty()
    chunk_lines = 1 if interactive else 1000
    typed = (line.removesuffix("\n") for line in sys.stdin)
    lines, again = tee(typed if interactive else lines_of(options.input, "translate"))
    translations = model.translate_lines(
        lines,
        options.prefix,
        chunk_lines=chunk_lines,
        workers=1 if interactive else options.workers,
        draft=options.draft,
        **overrides,
    )
    if options.alignment:
        from sightline.cli.attention import with_links

        linked = with_links(model, again, translations, chunk_lines)
    else:
        del again  # or every line would be kept
        linked = ((translation, None) for translation in translations)
    apart = options.alignment not in ("", "-")
    with output(options.output) as file, output(options.alignment) if apart else nullcontext() as links_file:
        for translation, links in progress(linked, options.input):
            file.write(format_translation(translation, options.format, None if apart else links) + "\n")
            if links_file:
                links_file.write(f"{links}\n")
            if interactive:
                file.flush()
    if "glossary" in overrides:
        print(overrides["glossary"].summary(), file=sys.stderr)


def format_translation(translation: "Translation", style: str, links: str | None = None) -> str:
    """One line: a JSON object, or the text and its alternatives between tabs; with word links if there are any."""
    if style == "jsonl":
        alignment = {} if links is None else {"alignment": links}
        return json.dumps({**asdict(translation), **alignment}, ensure_ascii=False)
    texts = [translation.text, *(other.text for other in translation.alternatives)]
    line = "\t".join(texts) if len(texts) == 1 else "\t".join(text.replace("\t", " ") for text in texts)
    return line if links is None else f"{line} ||| {links}"
