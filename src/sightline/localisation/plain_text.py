"""Text without any markup (.txt): every line is a paragraph, cut into sentences; blank lines and blanks stay."""

import re
from collections.abc import Sequence

from sightline.localisation.other_types import HEAD, refuse_by_content
from sightline.localisation.passages import Characters, Passages, TextPassage
from sightline.localisation.unit import plain

PARAGRAPH = re.compile(r"\S(?:[^\r\n]*\S)?")


def read_plain_text(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """A text; `languages` say nothing to it.

    Raises:
        UserError: it is not UTF-8, with the line; or no text, but a file of another type.
    """
    refuse_by_content(path, data[:HEAD])
    characters = Characters(path, data)
    found = PARAGRAPH.finditer(characters.text)
    return Passages(characters, (TextPassage(*one.span(), (one[0],), plain) for one in found))
