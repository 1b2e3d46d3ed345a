"""The search settings on a command line: what is given, and what the model would ignore."""

import argparse
from collections.abc import Mapping
from typing import Any

from headwise.cli.options import DECODING, SAMPLING, flag_of
from headwise.config.settings import SearchSettings
from headwise.errors import UserError


def decode_overrides(options: argparse.Namespace, usual: SearchSettings | None = None) -> dict[str, Any]:
    """The given `decode_options`; `UserError` for one that a model with the settings `usual` would ignore."""
    settings = {name: getattr(options, name, None) for name in DECODING}
    given = {name: value for name, value in settings.items() if value is not None}
    if usual is not None:
        refuse_unread(given, usual)
    if getattr(options, "glossary", "") or getattr(options, "keep", ""):
        given["glossary"] = options.modules["glossary"].requested_glossary(options)
    return given


def refuse_unread(given: Mapping[str, Any], usual: Any) -> None:
    """`UserError` for a setting that the kind of search ignores.

    Args:
        given: settings of the command line by name.
        usual: the model's own settings.
    """
    sample = given.get("sample", usual.sample)
    stray = [name for name in SAMPLING if name in given and not sample]
    if stray:
        raise UserError(f"{flag_of(stray[0])} is for sampling: add --sample, or leave it out")
    if sample and given.get("beam_size", 1) > 1:
        raise UserError("--beam-size does not go with --sample, which uses no beam; --n-best samples several outputs")
