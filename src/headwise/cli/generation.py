"""Options and output of the commands for models that generate text or predict with probabilities."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headwise.cli.options import PRETRAINED, model_option, setting_option, whole_number
from headwise.config.settings import ABSOLUTE, SETTINGS, SearchSettings

GENERATION = (  # settings with an option of `generation_options`
    *("max_new_tokens", "min_new_tokens", "beam_size", "length_penalty", "n_best", "no_repeat_ngram"),
    "repetition_penalty",
    *("temperature", "top_k", "top_p", "seed", "batch_size"),
)


def generation_options(parser: argparse.ArgumentParser) -> None:
    """An option for every setting of generation; those not given leave the model's own."""
    known = ABSOLUTE | {
        name: SETTINGS[f"decode.{name}"] for name in (*GENERATION, "sample", "stop") if name not in ABSOLUTE
    }
    group = parser.add_argument_group("generation")
    for name in (*GENERATION, "sample", "stop"):
        setting_option(group, name, known[name], {"batch_size": "texts per batch; 0 is automatic"}.get(name, ""))


def generation_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The given `generation_options`."""
    given = {name: getattr(options, name, None) for name in (*GENERATION, "sample", "stop")}
    return {name: value for name, value in given.items() if value is not None}


def search_settings(model: Any) -> SearchSettings:
    """The model's own settings of generation."""
    return model.generation.settings if model.generation else model.decode_config


def pretrained_options(parser: argparse.ArgumentParser, more: Sequence[str] = ()) -> None:
    """MODEL, --device and --compute."""
    model_option(parser, PRETRAINED)
    compute_option(parser, more)


def compute_option(parser: argparse.ArgumentParser, more: Sequence[str] = ()) -> None:
    """`--compute` for models with no other decoding options; `translate` has it among those."""
    choices = ("float32", *more, "bfloat16", "float16")
    text = (
        f"{', '.join(choices)}: weight precision (default: float32 on a CPU; elsewhere that of the file, and 16 bits "
    )
    text += "for generated text)"
    parser.add_argument("--compute", choices=choices, metavar="NAME", help=text)


def top_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--top", type=whole_number(1), default=5, metavar="N", help=f"{what} (default: %(default)s)")


def format_output(written: Any, style: str) -> str:
    """An output as a JSON object, or the text with its alternatives below it."""
    if style == "jsonl":
        return json.dumps(asdict(written), ensure_ascii=False)
    return "\n".join([written.text, *(other.text for other in written.alternatives)])


def print_ranked(groups: list[list[tuple[float, str]]]) -> None:
    """Print probabilities and names, one per line, with a blank line between groups."""
    print("\n\n".join("\n".join(f"{share:.4f}  {name}" for share, name in group) for group in groups))
