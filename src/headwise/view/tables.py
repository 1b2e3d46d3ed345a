"""Small tables of records: as HTML in a notebook, as text in a terminal.

The HTML has captions and header cells, and escapes every text. It has the colours of the notebook, light or dark,
except for tinted cells, which bring both of theirs. See `record.py` for the tables of a record.
"""

import html
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwise.view.labels import width_of

INK = "#1b2530"  # text of tinted cells
RAISED, LOWERED = (31, 102, 176), (179, 88, 6)  # full tints of 1 and -1: blue and orange
STRONGEST = 0.45  # share of a tint in the background, so that text keeps its contrast
GAP = "  "  # between columns of a text
JOINERS = "\u200c\u200d"  # invisible, but part of how words are spelled


@dataclass(frozen=True)
class RecordTable:
    """A table of texts; the first cell of each row is its header."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    tints: Sequence[Sequence[float]] = ()  # -1 to 1, for the cells after the first of each row

    def html(self) -> str:
        """A `<table>`.

        >>> RecordTable("Sizes", ["name", "size"], [["<a>", "1"]]).html().count("&lt;a&gt;")
        1
        """
        head = "".join(f'<th scope="col" dir="auto">{_escaped(text)}</th>' for text in self.head)
        rows = "".join(f"<tr>{''.join(self._row(n))}</tr>" for n in range(len(self.rows)))
        caption = f'<caption style="text-align: left; white-space: nowrap">{_escaped(self.caption)}</caption>'
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _row(self, number: int) -> Iterator[str]:
        first, *rest = self.rows[number]
        yield f'<th scope="row" dir="auto">{_escaped(first)}</th>'
        for column, text in enumerate(rest):
            colours = (
                f' style="background: {background(self.tints[number][column])}; color: {INK}"' if self.tints else ""
            )
            yield f'<td dir="auto"{colours}>{_escaped(text)}</td>'

    def text(self, width: int = 0) -> str:
        """Lines of at most `width` columns (0: of the terminal); columns that do not fit continue below.

        >>> print(RecordTable("Sizes", ["name", "size"], [["small", "1"], ["日本", "10"]]).text(80))
        Sizes
        name   size
        small  1
        日本   10
        """
        columns = list(zip(*([printable(text) for text in row] for row in (self.head, *self.rows)), strict=True))
        padded = [[_padded(text, max(map(width_of, column))) for text in column] for column in columns]
        lines = [printable(self.caption)]
        for block in _blocks(padded, width or shutil.get_terminal_size().columns):
            lines += [GAP.join(cells).rstrip() for cells in zip(*block, strict=True)]
        return "\n".join(lines)


class Tabular:
    """A record that is shown as tables, by `print` and in a notebook."""

    def tables(self) -> Iterator[RecordTable]:
        """The tables, first to last."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables())

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def background(tint: float) -> str:
    """The colour behind a cell: white for 0, blue for 1, orange for -1.

    >>> background(0.0), background(1.0)
    ('#ffffff', '#9abadb')
    """
    share = STRONGEST * min(1.0, abs(tint))
    colour = RAISED if tint > 0 else LOWERED
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in colour)


def printable(text: str) -> str:
    """A text with escapes for control characters, line ends and lone surrogates.

    >>> printable("a\\n\\x1b[2J日本")
    'a\\\\n\\\\x1b[2J日本'
    """
    return "".join(
        one if one.isprintable() or one in JOINERS else one.encode("unicode_escape").decode("ascii") for one in text
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def _blocks(columns: Sequence[list[str]], width: int) -> Iterator[list[list[str]]]:
    """The columns in groups that fit into the width, each after the first column."""
    first, *rest = columns
    taken, used = [first], width_of(first[0])
    for column in rest:
        size = len(GAP) + width_of(column[0])
        if len(taken) > 1 and used + size > width:
            yield taken
            taken, used = [first], width_of(first[0])
        taken.append(column)
        used += size
    yield taken
