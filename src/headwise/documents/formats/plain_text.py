"""Plain text (.txt): every line is a paragraph, split into sentences; empty lines and outer blanks stay."""

import re
from collections.abc import Sequence

from headwise.documents.formats.unsupported_types import HEAD_BYTES, check_content
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import plain

PARAGRAPH = re.compile(r"\S(?:[^\r\n]*\S)?")


def read_plain_text(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a text file; `languages` are ignored."""
    check_content(path, data[:HEAD_BYTES])
    characters = Characters(path, data)
    found = PARAGRAPH.finditer(characters.text)
    return Passages(characters, (TextPassage(*one.span(), (one[0],), plain) for one in found))
