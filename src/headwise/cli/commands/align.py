"""Example: headwise align runs/ende --source train.en --target train.de -o links.txt"""

import argparse
import sys
from typing import Any

from headwise.cli.files import output
from headwise.cli.loading import translator_of
from headwise.cli.options import (
    TRANSLATION_MODEL,
    language_options,
    languages_of,
    model_option,
    output_option,
    source_option,
    target_option,
)
from headwise.cli.parallel_texts import parallel_texts, source_text, target_text
from headwise.cli.rules import FlagRule, in_file
from headwise.runtime.checkpoint.sidecar_files import write_alignment
from headwise.text.files.links import check_links, format_links, read_gold

RULES = (
    FlagRule(("output", "reverse"), lambda o: o.choose, "does not go with --choose, which writes into MODEL alone"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, TRANSLATION_MODEL)
    source_option(parser, "source texts, one per line")
    target_option(parser, "their translations, one per line", required=True)
    output_option(parser, "file to write the links (i-j) to, one line per pair")
    reverse = "model for the opposite direction; the links of both are combined (grow-diag)"
    parser.add_argument("--reverse", metavar="MODEL", help=reverse)
    choose = "correct links of these pairs: find the attention head that agrees best, and save this choice in MODEL"
    parser.add_argument("--choose", type=in_file, metavar="FILE", help=choose)
    language_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print the links of each pair, or choose the attention to read them from."""
    model = translator_of(options)
    texts = [source_text(options.source), target_text(options.target, "--target")]
    sources, targets = parallel_texts(texts, languages_of(options))
    if options.choose:
        _choose_head(model, sources, targets, options.choose)
        return
    reverse = translator_of(options, options.reverse) if options.reverse else None
    with output(options.output) as file:
        file.writelines(f"{format_links(links)}\n" for links in model.align(sources, targets, reverse=reverse))


def _choose_head(model: Any, sources: list[str], targets: list[str], path: str) -> None:
    gold = read_gold(path)
    check_links(path, [pair.possible for pair in gold], sources, targets)
    ranked = model.rank_heads(sources, targets, gold)
    for head, score in list(ranked.items())[:5]:
        print(f"{head!s:<40} {score.render()}")
    best = next(iter(ranked))
    print(f"{write_alignment(model.path, best.as_json())}: {best}", file=sys.stderr)
