"""Attention as plain text: a heat map of blocks for the terminal.

Each weight is a cell of two columns, as wide as a Chinese or Japanese character. Labels of columns are vertical. What
is wider than the terminal continues below.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np
from jaxtyping import Float

from headwise.view.labels import token_label, width_of

SHADES = " ·░▒▓█"
CELL = 2  # columns of a weight
LONGEST = 14  # columns of a label; longer ones are cut


def heat_map(
    weights: Float[np.ndarray, "query key"], queries: Sequence[str], keys: Sequence[str], width: int = 80
) -> str:
    """A map with queries as rows and keys as columns, in several parts if they do not fit into `width`.

    >>> print(heat_map(np.eye(2, dtype=np.float32), ["▁Ein", "▁Hund"], ["▁A", "▁dog"]))
            d
            o
         A  g
     Ein ██
    Hund   ██
      0 · ░ ▒ ▓ █ 1
    """
    rows = [short_label(token_label(piece)) for piece in queries]
    indent = max((width_of(row) for row in rows), default=0)
    per_stretch = max(1, (width - indent - 1) // CELL)
    starts = range(0, len(keys), per_stretch)
    lines: list[str] = []
    for start in starts:
        stop = min(start + per_stretch, len(keys))
        if len(starts) > 1:
            lines.append(f"columns {start} to {stop - 1} of {len(keys)}")
        lines += vertical([short_label(token_label(piece)) for piece in keys[start:stop]], indent)
        lines += [
            f"{right_aligned(row, indent)} {cells(line[start:stop])}" for row, line in zip(rows, weights, strict=True)
        ]
    return "\n".join(line.rstrip() for line in [*lines, "  0 " + " ".join(SHADES[1:]) + " 1"])


def cells(weights: Float[np.ndarray, " key"]) -> str:
    """A row of weights as shades, by their square roots, so that small weights are visible."""
    shades = np.rint(np.sqrt(np.clip(weights, 0.0, 1.0)) * (len(SHADES) - 1)).astype(int)
    return "".join(SHADES[shade] * CELL for shade in shades)


def vertical(texts: Sequence[str], indent: int) -> Iterator[str]:
    """The lines of vertical texts side by side that end on the same line."""
    columns = [list(graphemes(text)) for text in texts]
    height = max(map(len, columns), default=0)
    padding = [[" "] * (height - len(column)) + column for column in columns]
    for line in zip_longest(*padding, fillvalue=" "):
        yield " " * (indent + 1) + "".join(right_aligned(letter, CELL) for letter in line)


def graphemes(text: str) -> Iterator[str]:
    """The characters of a text with their combining marks.

    >>> [len(letter) for letter in graphemes("e\\u0301a")]
    [2, 1]
    """
    letter = ""
    for character in text:
        if letter and width_of(character):
            yield letter
            letter = ""
        letter += character
    if letter:
        yield letter


def short_label(text: str) -> str:
    """A text of at most `LONGEST` columns.

    >>> short_label("Donaudampfschiffahrt")
    'Donaudampfsch…'
    """
    if width_of(text) <= LONGEST:
        return text
    while width_of(text) >= LONGEST:
        text = text[:-1]
    return text + "…"


def right_aligned(text: str, width: int) -> str:
    """A text right-aligned in `width` columns."""
    return " " * (width - width_of(text)) + text
