"""Example: headwise embed hf:sentence-transformers/all-MiniLM-L6-v2 input.txt -o vectors.npy"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headwise.cli.files import binary_output, lines_of, output
from headwise.cli.generation import pretrained_options
from headwise.cli.loading import encoding_model
from headwise.cli.options import input_option, output_option, whole_number
from headwise.cli.rules import FlagRule
from headwise.config.settings import INTEGERS
from headwise.models.encoding.vectors import truncation_warning
from headwise.text.files.sources import display_name

CHUNK_LINES = 1000
RULES = (
    FlagRule(
        ("output",),
        lambda o: Path(o.output).suffix not in ("", ".npy", ".json", ".jsonl", ".txt"),
        "is for an array (.npy) or for lines of JSON (.jsonl, .json, .txt): name one of these endings",
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    input_option(parser)
    output_option(parser, ".npy file for one array (lines, width), or .jsonl, .json or .txt for JSON lines")
    group = parser.add_argument_group("embeddings")
    choices = ("mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean")
    pooling = f"{', '.join(choices)}: how a text's embedding is made from those of its tokens (default: the "
    pooling += "model's, else mean)"
    group.add_argument("--pooling", choices=choices, default="", metavar="NAME", help=pooling)
    length = (
        "scale embeddings to length 1, so that dot products are cosine similarities (default: the model's, else yes)"
    )
    group.add_argument("--normalize", action=argparse.BooleanOptionalAction, default=None, help=length)
    prompt = "put the model's prompt of this name before each line; '' for none (default: the model's)"
    group.add_argument("--prompt", metavar="NAME", help=prompt)
    batch = "texts per batch (default: %(default)s)"
    parser.add_argument("--batch-size", type=whole_number(1), default=16, metavar="N", help=batch)


def run(options: argparse.Namespace) -> None:
    """Write an embedding for each line."""
    model = encoding_model(options, "embed texts")
    settings = model.embedder.settings
    settings.changed(options.pooling, options.normalize).width(model.embedder.d_model)
    settings.prompt(options.prompt)
    names = ", ".join(name for name, text in settings.prompts.items() if text)
    if names and options.prompt is None and not settings.default_prompt:
        print(f"{options.model}: has prompts that --prompt puts before each line: {names}", file=sys.stderr)
    lines, cuts = lines_of(options.input, "embed"), list[tuple[str, int]]()
    if options.output.endswith(".npy"):
        with binary_output(options.output) as file:
            np.save(file, np.concatenate(list(_embedded(model, lines, options, cuts))))
    else:
        with output(options.output) as file:
            for vectors in _embedded(model, lines, options, cuts):
                file.writelines(json.dumps([round(x, 6) for x in vector]) + "\n" for vector in vectors.tolist())
    if cuts:
        print(f"{display_name(options.input)}: {truncation_warning(cuts, model.embedder.longest)}", file=sys.stderr)


def _embedded(
    model: Any, lines: Iterable[str], options: argparse.Namespace, cuts: list[tuple[str, int]]
) -> Iterator[Any]:
    """Embeddings in chunks, at least one; truncated lines are added to `cuts`."""
    waiting, done = iter(lines), 0
    while (chunk := list(islice(waiting, CHUNK_LINES))) or not done:
        vectors, found = model.embedder(chunk, options.pooling, options.normalize, options.batch_size, options.prompt)
        cuts += [(f"line {done + cut.index + 1}", cut.tokens) for cut in found]
        yield vectors
        done += len(chunk)
        if len(chunk) < CHUNK_LINES:
            return
