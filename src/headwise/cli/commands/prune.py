"""Example: headwise prune runs/ende --heads 30% --source valid.en --target valid.de --out runs/pruned"""

import argparse
import sys
from typing import Any

from headwise.cli.loading import model_of
from headwise.cli.options import ANY_MODEL, files_option, language_options, model_option, target_option
from headwise.cli.parallel_texts import parallel_texts, source_text, target_text
from headwise.errors import UserError
from headwise.text.files.sources import count_of


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, f"{ANY_MODEL}; one with attention")
    heads = "how many heads to remove: a share, such as 30%%, or a number; every attention layer keeps at least one"
    parser.add_argument("--heads", required=True, metavar="SHARE", help=heads)
    source = "data to measure importance with: a file of texts, or files of pictures, sounds, series or labelled texts"
    files_option(parser, "--source", source, required=True)
    target_option(parser, "what belongs to each line of --source: translations, labels or transcripts")
    parser.add_argument("--out", required=True, metavar="DIR", help="model folder to write")
    language_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure the importance of all heads, remove the least important ones and print which."""
    from headwise.pytorch.inspect.heads import all_heads, heads_by_layer
    from headwise.pytorch.inspect.importance import least_important
    from headwise.pytorch.models.pruning import ZEROED, heads_can_go, parse_count

    model = model_of(options)
    count = parse_count(options.heads, len(all_heads(model.network)))
    removed = heads_by_layer(least_important(model.head_importance(*_inputs(options, model)), count))
    folder = model.prune(removed, options.out)
    text = f"{folder}: without {count_of(count, 'head')}, {dict(removed)}"
    print(text if heads_can_go(model.config) else f"{text}; {ZEROED}", file=sys.stderr)


def _inputs(options: argparse.Namespace, model: Any) -> list[Any]:
    """The arguments of `head_importance` for this model; `UserError` for files of another kind."""
    targets = [target_text(options.target, "--target")] if options.target else []
    if model.reads == "series":
        if options.target:
            raise UserError("--target: this model predicts series, whose targets are in the files of --source")
        return [options.source]
    if hasattr(model, "examples") and not options.target:
        return [*model.examples(options.source)]
    if model.reads in ("picture", "sound"):
        return [options.source, *parallel_texts(targets)]
    if len(options.source) > 1 or (model.reads == "pairs" and not options.target):
        raise UserError("one file of texts is --source, and for a model that translates --target has the translations")
    return parallel_texts([source_text(options.source[0]), *targets])
