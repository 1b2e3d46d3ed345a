"""Example: headwise score runs/ende --source test.en --target test.de -o scores.jsonl"""

import argparse
import json
import math
import sys
from typing import Any

from headwise.cli.files import output
from headwise.cli.generation import compute_option
from headwise.cli.loading import model_of
from headwise.cli.options import (
    ANY_MODEL,
    language_options,
    languages_of,
    model_option,
    output_option,
    ray_option,
    source_option,
    target_option,
    window_options,
)
from headwise.cli.parallel_texts import holds_pairs, parallel_texts, texts_to_score
from headwise.errors import UserError
from headwise.evaluate.language import windows_text
from headwise.evaluate.score import corpus_perplexity
from headwise.text.files.sources import count_of


def add_options(parser: argparse.ArgumentParser) -> None:
    model_option(parser, ANY_MODEL)
    compute_option(parser)
    source = "source texts, one per line, or a file of pairs that has the translations, too (.tsv, .po, ...); for a "
    source_option(parser, f"{source}language model, text or .jsonl to score")
    target_option(parser, "their translations, one per line")
    window_options(parser)
    output_option(parser)
    ray_option(parser)
    language_options(parser)


def run(options: argparse.Namespace) -> None:
    """One JSON line per pair, and the corpus perplexity on standard error; for a language model that of the text."""
    model = model_of(options)
    if hasattr(model, "perplexity") and not options.target:
        _score_text(options, model)
        return
    score = model.score
    if options.stride or options.window or not (options.target or holds_pairs(options.source)):
        raise UserError("--target is required for a translation model, and --window and --stride are not for it")
    if options.compute not in (None, model.dtype):
        raise UserError(f"--compute {options.compute}: this model scores in float32, whatever it decodes with")
    targets = [options.target] if options.target else []
    texts = texts_to_score(options.source, targets, ("--source", "--target"))
    sources, targets = parallel_texts(texts, languages_of(options))
    scores = score(sources, targets)
    records = [_record(one, token_log_probs=[*map(_finite, one.token_log_probs)]) for one in scores]
    _write_records(options.output, records)
    tokens = sum(len(score.token_log_probs) for score in scores)
    print(
        f"perplexity {corpus_perplexity(scores):.6g} over {count_of(tokens, 'token')}, {count_of(len(scores), 'pair')}",
        file=sys.stderr,
    )


def _score_text(options: argparse.Namespace, model: Any) -> None:
    """The perplexity that a language model has on the documents of a file."""
    found = model.evaluate([options.source], options.stride, options.window)
    _write_records(options.output, [_record(found, tokens=found.tokens, window=found.window, stride=found.stride)])
    read = windows_text(found.window, found.stride)
    print(f"perplexity {found.perplexity:.6g} over {count_of(found.tokens, 'token')} ({read})", file=sys.stderr)


def _record(score: Any, **more: Any) -> dict[str, Any]:
    return {"log_prob": _finite(score.log_prob), "perplexity": _finite(score.perplexity), **more}


def _write_records(path: str, records: list[dict[str, Any]]) -> None:
    with output(path) as file:
        file.writelines(json.dumps(record, allow_nan=False) + "\n" for record in records)


def _finite(number: float) -> float | None:
    """A number for JSON, which has no infinity: null stands for an impossible text, and for its perplexity."""
    return number if math.isfinite(number) else None
