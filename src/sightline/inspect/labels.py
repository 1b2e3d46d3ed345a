"""How pieces are written out in still pictures and in the terminal; `page/assets/pieces.js` does so for the page."""

import unicodedata

BLANK = "▁"  # how a tokenizer shows the blank in front of a piece


def label(piece: str) -> str:
    """A piece without the mark for its blank; a blank that is a piece of its own stays visible.

    >>> [label(piece) for piece in ["▁Mar", "ch", "▁", "</s>"]]
    ['Mar', 'ch', '␣', '</s>']
    """
    return piece.removeprefix(BLANK).replace(BLANK, "␣") or "␣"


def continues(piece: str) -> bool:
    """Whether a piece goes on with the word of the one before; marks such as `</s>` do not."""
    return not piece.startswith((BLANK, "<"))


def width_of(text: str) -> int:
    """Columns of a terminal, or widths of a Latin letter: two for a letter of Chinese or Japanese.

    >>> width_of("Hund"), width_of("日本"), width_of("e\\u0301")
    (4, 4, 1)
    """
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # marks on the letter before, and what is not seen at all
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
