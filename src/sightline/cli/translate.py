"""`sightline translate`."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sightline.cli.files import output, progress
from sightline.cli.options import decode_options, decode_overrides, load_model, model_options, workers_option

if TYPE_CHECKING:
    from sightline.decode.translator import Translation


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("translate", help="translate a file or standard input, line by line")
    model_options(parser)
    parser.add_argument("input", nargs="?", default="-", help="text file, also .gz (default: standard input)")
    parser.add_argument("-o", "--output", default="-", help="file to write (default: standard output)")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="jsonl adds scores and pieces")
    parser.add_argument("--prefix", default="", help="what every translation must begin with")
    draft = "guess ahead, for a quicker answer to single sentences, the same as with --beam-size 1: 'input', "
    draft += "a smaller model's directory, or a translation memory (a file as `sightline train` takes it)"
    parser.add_argument("--draft", default="", metavar="FROM", help=draft)
    workers_option(parser)
    decode_options(parser)
    parser.set_defaults(run=run_translate)


def run_translate(options: argparse.Namespace) -> None:
    """Translate; line in, line out."""
    from sightline.data.corpus import read_lines

    overrides = decode_overrides(options)
    model = load_model(options)
    interactive = options.input == "-" and sys.stdin.isatty()
    translations = model.translate_lines(
        _stdin_lines() if interactive else read_lines(options.input, allow_empty=True),
        options.prefix,
        chunk_lines=1 if interactive else 1000,
        workers=1 if interactive else options.workers,
        draft=options.draft,
        **overrides,
    )
    with output(options.output) as file:
        for translation in progress(translations, options.input):
            file.write(format_translation(translation, options.format) + "\n")
            if interactive:
                file.flush()


def _stdin_lines() -> Iterator[str]:
    for line in sys.stdin:
        yield line.removesuffix("\n")


def format_translation(translation: "Translation", style: str) -> str:
    """One line: a JSON object, or the text and its alternatives between tabs."""
    if style == "jsonl":
        from sightline.api import as_record

        return json.dumps(as_record(translation), ensure_ascii=False)
    texts = [translation.text, *(other.text for other in translation.alternatives)]
    return "\t".join(texts) if len(texts) == 1 else "\t".join(text.replace("\t", " ") for text in texts)
