"""Options that several commands share, and what they stand for."""

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sightline.config import CHOICES, DecodeConfig

if TYPE_CHECKING:
    from sightline.api import Model


DECODE_HELP = {
    "beam_size": "hypotheses kept; 1 is greedy",
    "length_penalty": "alpha of the paper's length penalty; higher favours longer output",
    "max_length_factor": "longest output = this * source pieces + --max-length-extra",
    "max_length_extra": "see --max-length-factor",
    "min_length_factor": "shortest output = this * source pieces",
    "no_repeat_ngram": "no n-gram of this size twice in an output; 0 is off",
    "n_best": "translations per line; in text output separated by tabs",
    "sample": "draw at random instead of searching",
    "temperature": "of sampling",
    "top_k": "sample from the k likeliest pieces; 0 is all",
    "top_p": "sample from the likeliest pieces with this total probability",
    "seed": "of sampling",
    "batch_tokens": "source pieces translated at once",
    "max_source_length": "longer lines are translated in parts, pieces",
    "shortlist": "write only what `sightline shortlist` has found likely for the source; faster on a CPU",
    "draft_length": "pieces guessed ahead with --draft",
    "compute": "numbers to compute with; int8 is fastest on a CPU, bfloat16 on CUDA",
}


def decode_options(parser: argparse.ArgumentParser) -> None:
    """An option for every field of `DecodeConfig`; those not given leave the model's own setting."""
    group = parser.add_argument_group("decoding (default: the model's own settings)")
    for field in fields(DecodeConfig):
        name, text = "--" + field.name.replace("_", "-"), DECODE_HELP[field.name]
        if field.type is bool:
            group.add_argument(name, action="store_true", default=None, help=text)
        else:
            choices = CHOICES.get(f"decode.{field.name}")
            group.add_argument(name, type=field.type, choices=choices, metavar=None if choices else "N", help=text)


def decode_overrides(options: argparse.Namespace) -> dict[str, Any]:
    given = {field.name: getattr(options, field.name) for field in fields(DecodeConfig)}
    return {name: value for name, value in given.items() if value is not None}


def model_options(parser: argparse.ArgumentParser, needed: bool = True) -> None:
    parser.add_argument("model", metavar="MODEL", nargs=None if needed else "?", help="model directory")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def workers_option(parser: argparse.ArgumentParser) -> None:
    workers = "processes that share the lines (default: as many as pay on this machine)"
    parser.add_argument("--workers", type=int, default=0, metavar="N", help=workers)


def load_model(options: argparse.Namespace, path: str | None = None) -> "Model":
    """A translation model."""
    from sightline.api import load_translator

    return load_translator(path or options.model, options.device)
