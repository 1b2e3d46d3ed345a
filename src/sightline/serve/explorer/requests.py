"""What the page may ask for, read from JSON with limits; whatever else arrives is a `UserError` that says why not."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sightline.errors import UserError

MAX_CHARACTERS = 4000  # characters
MAX_BEAM_SIZE = 16
MAX_NUMBER = 10**6
PARTS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class ExplorerRequest:
    """What a page asks about one sentence."""

    model: int  # which of those that are shown
    text: str
    prefix: str  # what the translation must begin with
    beam_size: int
    masks: Mapping[str, Mapping[int, list[int]]]  # heads to silence, as `Model.mask_heads` takes them
    page: str  # a page's own name for itself; of its requests that wait only the newest counts
    stack: str  # of the walk, with the two that follow
    layer: int
    head: int
    file: bytes = b""  # of a picture or a sound, whose name is the text


def parse_request(body: bytes) -> ExplorerRequest:
    """The request in a JSON object; what it leaves out has the values of an empty page.

    >>> parse_request(b'{"text": "A dog.", "beam_size": 2}').beam_size
    2
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the request is not JSON") from None
    if not isinstance(given, dict):
        raise UserError("the request is not a JSON object")
    return ExplorerRequest(
        model=_number(given, "model", 0, 0, 9),
        text=_text(given, "text", MAX_CHARACTERS),
        file=_file(given),
        prefix=_text(given, "prefix", MAX_CHARACTERS),
        beam_size=_number(given, "beam_size", 4, 1, MAX_BEAM_SIZE),
        masks=_masks(given.get("masks", {})),
        page=_text(given, "page", 80),
        stack=_text(given, "stack", 10),
        layer=_number(given, "layer", 0, 0, MAX_NUMBER),
        head=_number(given, "head", 0, 0, MAX_NUMBER),
    )


def _text(given: dict[str, Any], name: str, longest: int) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise UserError(f"{name} must be a string")
    if len(value) > longest:
        raise UserError(f"{name} has {len(value):,} characters; at most {longest:,} are allowed here")
    return value


def _file(given: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(given.get("file", ""), validate=True)
    except (TypeError, ValueError):
        raise UserError("file must be base64") from None


def _number(given: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}")
    return value


def _masks(given: Any) -> dict[str, dict[int, list[int]]]:
    """Layers are strings in JSON.

    >>> _masks({"cross": {"2": [0]}})
    {'cross': {2: [0]}}
    """
    try:
        masks = {
            part: {int(layer): [int(head) for head in heads] for layer, heads in layers.items()}
            for part, layers in given.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise UserError('masks must look like {"cross": {"2": [0, 3]}}') from None
    if not masks.keys() <= set(PARTS):
        raise UserError(f"masks: the parts are {', '.join(PARTS)}")
    return masks
