"""Requests of the page as JSON, with limits; anything else is a `UserError`."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.errors import UserError

MAX_CHARACTERS = 4000  # characters
MAX_BEAM_SIZE = 16
MAX_NUMBER = 10**6
PARTS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class ExplorerRequest:
    """A request about one sentence."""

    model: int  # number of the model on the page
    text: str
    prefix: str  # forced start of the translation
    beam_size: int
    masks: Mapping[str, Mapping[int, list[int]]]  # heads to mask, as for `Model.mask_heads`
    page: str  # id of the page; of its waiting requests only the newest is answered
    stack: str  # stack, layer and head of a walk
    layer: int
    head: int
    file: bytes = b""  # image or sound; its name is the text


def parse_request(body: bytes) -> ExplorerRequest:
    """The request in a JSON object; missing values are those of an empty page.

    >>> parse_request(b'{"text": "A dog.", "beam_size": 2}').beam_size
    2
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the request is not JSON") from None
    if not isinstance(values, dict):
        raise UserError("the request is not a JSON object")
    return ExplorerRequest(
        model=_number(values, "model", 0, 0, 9),
        text=_text(values, "text", MAX_CHARACTERS),
        file=_file(values),
        prefix=_text(values, "prefix", MAX_CHARACTERS),
        beam_size=_number(values, "beam_size", 4, 1, MAX_BEAM_SIZE),
        masks=_masks(values.get("masks", {})),
        page=_text(values, "page", 80),
        stack=_text(values, "stack", 10),
        layer=_number(values, "layer", 0, 0, MAX_NUMBER),
        head=_number(values, "head", 0, 0, MAX_NUMBER),
    )


def _text(values: dict[str, Any], name: str, longest: int) -> str:
    value = values.get(name, "")
    if not isinstance(value, str):
        raise UserError(f"{name} must be a string")
    if len(value) > longest:
        raise UserError(f"{name} {len(value):,} characters; at most {longest:,} are allowed")
    return value


def _file(values: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(values.get("file", ""), validate=True)
    except (TypeError, ValueError):
        raise UserError("file must be base64") from None


def _number(values: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}")
    return value


def _masks(values: Any) -> dict[str, dict[int, list[int]]]:
    """Layer numbers are strings in JSON.

    >>> _masks({"cross": {"2": [0]}})
    {'cross': {2: [0]}}
    """
    try:
        masks = {
            part: {int(layer): [int(head) for head in heads] for layer, heads in layers.items()}
            for part, layers in values.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise UserError('masks must look like {"cross": {"2": [0, 3]}}') from None
    if not masks.keys() <= set(PARTS):
        raise UserError(f"masks: the stacks are {', '.join(PARTS)}")
    return masks
