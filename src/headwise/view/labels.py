"""Labels of tokens in pictures and in the terminal; `page/assets/pieces.js` does the same for the page."""

import unicodedata

BLANK = "▁"  # a tokenizer's sign for the blank in front of a token


def token_label(piece: str) -> str:
    """A token without the sign for its blank; a blank that is a token of its own stays visible.

    >>> [token_label(piece) for piece in ["▁Mar", "ch", "▁", "</s>"]]
    ['Mar', 'ch', '␣', '</s>']
    """
    return piece.removeprefix(BLANK).replace(BLANK, "␣") or "␣"


def continues(piece: str) -> bool:
    """Whether a token continues the word of the one before; special tokens such as `</s>` do not."""
    return not piece.startswith((BLANK, "<"))


def width_of(text: str) -> int:
    """Columns of a terminal, or widths of a Latin letter: two for a letter of Chinese or Japanese.

    >>> width_of("Hund"), width_of("日本"), width_of("e\\u0301")
    (4, 4, 1)
    """
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # combining marks, and what is invisible
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
