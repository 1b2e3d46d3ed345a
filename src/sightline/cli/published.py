"""Published models where a command expects one of ours: loaded as it is asked for, with the settings that it has."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.generation.models import RewritingModel
    from sightline.looks import LookVerbs

HALF = ("float16", "bfloat16")


def load_published(options: argparse.Namespace, path: str) -> "RewritingModel":
    """What reads a text and writes another, between the languages of `language_options`.

    Half precision is what it is loaded in; of a model of ours it is a setting of decoding.
    """
    from sightline.api import load_translator

    return _as_asked(load_translator(path, options.device, _numbers(options)), options, path)


def load_looked(options: argparse.Namespace, path: str) -> "RewritingModel | LookVerbs":
    """`load_published` for what can be looked into: also what reads one text, a picture or a sound."""
    from sightline.api import load
    from sightline.generation.models import RewritingModel
    from sightline.looks import LookVerbs

    model = load(path, options.device, _numbers(options))
    if isinstance(model, LookVerbs):
        return model
    if isinstance(model, RewritingModel):
        return _as_asked(model, options, path)
    raise UserError(f"{model}, and its attention is of a kind that is not recorded")


def _numbers(options: argparse.Namespace) -> str:
    compute = getattr(options, "compute", None)
    return compute if compute in HALF else "auto"


def _as_asked(model: Any, options: argparse.Namespace, path: str) -> "RewritingModel":
    for name in model.generation.unused:
        print(f"{path}: generation_config.json asks for {name}, which is not supported", file=sys.stderr)
    return model.between(getattr(options, "source_language", ""), getattr(options, "target_language", ""))


def as_published(given: Mapping[str, Any], usual: Any) -> dict[str, Any]:
    """Settings of one call for a published model, whose own are `usual`; `UserError` for one that it does not have."""
    own = {field.name for field in fields(usual)}
    stray = next((name for name in given if name not in own), "")
    if stray:
        raise UserError(f"--{stray.replace('_', '-')} is for models that Sightline has trained")
    return {name: value for name, value in given.items() if name != "compute" or value not in HALF}
