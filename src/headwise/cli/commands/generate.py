"""Example: headwise generate hf:openai-community/gpt2 "Once upon a time" --max-new-tokens 50"""

import argparse
import sys
from typing import Any

from headwise.cli.generation import (
    format_output,
    generation_options,
    generation_settings,
    pretrained_options,
    search_settings,
)
from headwise.cli.loading import model_with
from headwise.cli.options import flag_of, format_option, language_options, refuse_unread
from headwise.config.settings import INTEGERS
from headwise.errors import UserError

COMMON = (
    *("--max-new-tokens", "--chat", "--sample", "--temperature", "--top-p", "--seed", "--beam-size", "--format"),
    *("--compute", "--device"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    prompts = "text to continue or to rewrite, or several (default: the lines of standard input)"
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help=prompts)
    parser.add_argument("--chat", action="store_true", help="send each PROMPT to a chat model as the message of a user")
    prefix = "text that every output must begin with (models with an encoder)"
    parser.add_argument("--prefix", default="", metavar="TEXT", help=prefix)
    instruction = "text to put before each PROMPT, such as 'summarize: ' (T5)"
    parser.add_argument("--instruction", default="", metavar="TEXT", help=instruction)
    format_option(parser, "output format; jsonl adds tokens and scores")
    language_options(parser)
    generation_options(parser)


def run(options: argparse.Namespace) -> None:
    """Print the outputs; a single one is streamed."""
    model = model_with(options, "write text")
    settings = generation_settings(options) | ({"compute": options.compute} if options.compute in INTEGERS else {})
    inputs = _input_settings(options, model)
    refuse_unread(settings, search_settings(model))
    prompts = options.prompts or [line.removesuffix("\n") for line in sys.stdin]
    texts = [[{"role": "user", "content": text}] if options.chat else text for text in prompts]
    if len(texts) == 1 and options.format == "text" and _can_stream(model, settings):
        for piece in model.stream(texts[0], **settings, **inputs):
            print(piece, end="", flush=True)
        print()
        return
    for written in model.generate(texts, **settings, **inputs):
        print(format_output(written, options.format), flush=True)


def _input_settings(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Settings of models with an encoder; `UserError` for them or `--chat` with the other kind of model."""
    names = ("prefix", "instruction", "source_language", "target_language")
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    encoder = hasattr(model, "languages")
    if given and not encoder:
        flag = flag_of(next(iter(given)))
        raise UserError(f"{flag} is for models that read a text before they write; put it into the prompt")
    if options.chat and encoder:
        raise UserError("--chat is for models that write on; this one rewrites texts")
    return given


def _can_stream(model: Any, settings: dict[str, Any]) -> bool:
    """Whether a token, once generated, is never replaced."""
    chosen = search_settings(model).changed({name: value for name, value in settings.items() if name != "compute"})
    return chosen.n_best == 1 and (chosen.sample or chosen.beam_size == 1)
