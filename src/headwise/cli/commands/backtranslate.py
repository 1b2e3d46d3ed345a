"""Example: headwise backtranslate runs/deen --text news.de --tag "<bt>" -o pairs.jsonl"""

import argparse
import shlex
import sys
from collections import Counter
from itertools import chain

from headwise.cli.corpus_files import corpus_output_option, line_translator, pair_format, write_corpus
from headwise.cli.files import lines_of
from headwise.cli.loading import model_or_ensemble
from headwise.cli.options import (
    TRANSLATION_MODEL,
    decode_options,
    decode_overrides,
    ensemble_options,
    files_option,
    languages_of,
)
from headwise.models.translation.backtranslation import back_translate
from headwise.text.files.file_checks import check_file_language
from headwise.text.files.sources import count_of

COMMON = (
    *("--text", "--output", "--tag", "--sample", "--beam-size", "--top-k", "--seed", "--compute", "--workers"),
    "--device",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    ensemble_options(parser, f"{TRANSLATION_MODEL}; it translates from your target language into your source language")
    files_option(parser, "--text", "text in the target language, a sentence per line; also .gz", required=True)
    corpus_output_option(parser)
    tag = "token to put before every source, such as '<bt>', to tell machine translations apart (default: none)"
    parser.add_argument("--tag", default="", metavar="TOKEN", help=tag)
    decode_options(parser, without=("draft_length", "n_best"))


def run(options: argparse.Namespace) -> None:
    """Write a corpus whose targets are the lines of the text, with sources by the model."""
    as_line = pair_format(options.output)
    model = model_or_ensemble(options)
    for path in options.text:
        check_file_language("--text", path, languages_of(options)[0])
    overrides = decode_overrides(options, model.decode_config)
    translate = line_translator(options, model, overrides | {"n_best": 1}, options.text)
    left_out: Counter[str] = Counter()
    lines = chain.from_iterable(lines_of(path, "backtranslate") for path in options.text)
    written = write_corpus(options.output, as_line, back_translate(lines, translate, options.tag, left_out))
    reasons = "".join(f"; left out {count:,} for: {reason}" for reason, count in left_out.items())
    counts = f"{options.output}: {count_of(written, 'pair')} of {count_of(written + left_out.total(), 'line')}{reasons}"
    more = f" {shlex.quote(options.output)}" + (f" --special {shlex.quote(options.tag)}" if options.tag else "")
    print(f"{counts}\ntrain on them and your pairs with: headwise train --train SRC TGT{more} ...", file=sys.stderr)
