"""Published models where a command expects one of ours: loaded as it is asked for, with the settings that it has."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.config import DataConfig
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.generation.models import RewritingModel
    from sightline.looks import LookVerbs

HALF = ("float16", "bfloat16")


def load_published(options: argparse.Namespace, path: str, told: bool = True) -> "RewritingModel":
    """What reads a text and writes another, between the languages of `language_options`.

    Half precision is what it is loaded in; of a model of ours it is a setting of decoding. A model of many languages
    must be `told` which, unless it is only to write, as it does without in `transformers`.
    """
    from sightline.api import load_translator

    return _as_asked(load_translator(path, options.device, _numbers(options)), options, path, told)


def load_together(options: argparse.Namespace) -> "RewritingModel":
    """`load_published` for MODEL and those of `ensemble_option`."""
    from sightline.api import load_translators

    if _numbers(options) != "auto":
        raise UserError(f"--compute {options.compute}: several published models write together in float32 or int8")
    model = load_translators([options.model, *options.ensemble], options.device)
    return _as_asked(model, options, options.model)


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


def _as_asked(model: Any, options: argparse.Namespace, path: str, told: bool = True) -> "RewritingModel":
    for name in model.generation.unused:
        print(f"{path}: generation_config.json asks for {name}, which is not supported", file=sys.stderr)
    languages = [getattr(options, f"{side}_language", "") for side in ("source", "target")]
    if not told and not all(languages):
        return replace(model, source_language=languages[0], target_language=languages[1])
    return model.between(*languages)


def as_published(given: Mapping[str, Any], usual: Any) -> dict[str, Any]:
    """Settings of one call for a published model, whose own are `usual`; `UserError` for one that it does not have."""
    own = {"shortlist", *(field.name for field in fields(usual))}  # which is no setting there, but can be asked for
    stray = next((name for name in given if name not in own), "")
    if stray:
        raise UserError(f"--{stray.replace('_', '-')} is for models that Sightline has trained")
    return {name: value for name, value in given.items() if name != "compute" or value not in HALF}


def pieces_of_published(options: argparse.Namespace) -> tuple[Path, Any, DataConfig]:
    """The folder of a model, its pieces on both sides, and which pairs to learn from."""
    from sightline.generation.rewrite import NO_SHORTLIST

    options.device = "cpu"
    model = load_published(options, options.model)
    if model.tokenizer.written:
        raise UserError(f"{options.model}: has two vocabularies; a shortlist is for models with one")
    if not model.compiled:
        raise UserError(f"{options.model}: {NO_SHORTLIST.partition(':')[0]}, and this is none")
    return model.path, model._translator.tokenizer, DataConfig()
