"""What commands know of models of many languages, and of settings of generation where others have `SearchSettings`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from sightline.cli.options import HALF
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.models.rewriting import RewritingModel


def between(model: "RewritingModel", languages: Sequence[str], path: str, told: bool = True) -> "RewritingModel":
    """The model between two languages, or as many as it was `told`; what its folder asks for in vain is mentioned."""
    for name in model.generation.unused:
        print(f"{path}: generation_config.json asks for {name}, which is not supported", file=sys.stderr)
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
