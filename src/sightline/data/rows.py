"""One pair of texts, and the fields of a data set row."""

from collections.abc import Mapping
from typing import Any

from sightline.errors import UserError

Pair = tuple[str, str]
HF_PREFIX = "hf:"
OUTSIDE = "O"  # the tag of words outside of every entity


def text_field(record: Mapping[str, Any], key: str, location: str) -> str:
    """`record[key]`, which must be a string that UTF-8 can hold."""
    if key not in record:
        raise UserError(f'{location} has no "{key}"; it has {", ".join(map(repr, record)) or "nothing"}')
    value = record[key]
    if not isinstance(value, str):
        raise UserError(f'{location}: "{key}" must be a string, not {type(value).__name__}')
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f'{location}: "{key}" holds half a surrogate pair, which is no text; remove the \\ud... escape')
    return value
