"""A text as sentences to translate and what stands between them; put together again, everything else is unchanged.

What people send are paragraphs, and translators have mostly learnt from sentences: unlike a line of a file for
`sightline translate`, every sentence is translated by itself. Of HTML, what stands between two tags is; tags, comments,
scripts and code stay as they are. Not here: other files (`files`).
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sightline.decode.translator import SENTENCE_END

ABBREVIATION = re.compile(r"(?:^|\s)[A-Z][a-z]?\.$")  # "Dr.", "J."; rather two sentences at once than half of one
LINE_END = re.compile(r"\r\n|\r|\n")
CLOSED_BY = {
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("script", "style", "code", "pre", "textarea")
}
MARKUP = re.compile(r"<(?:/?([a-zA-Z][a-zA-Z0-9:-]*)|[!?])")


@dataclass(frozen=True)
class Taken:
    """A text taken apart: `between` has one more than `sentences`."""

    between: tuple[str, ...]
    sentences: tuple[str, ...]
    is_html: bool = False

    def joined(self, sentences: Sequence[str]) -> str:
        """The text with other sentences in their places."""
        written = [html.escape(sentence, quote=False) for sentence in sentences] if self.is_html else sentences
        pairs = zip(self.between, written, strict=False)
        return "".join(part for pair in pairs for part in pair) + self.between[-1]


def take_apart(text: str, is_html: bool = False) -> Taken:
    """The sentences of a text, and what stands before, between and behind them.

    >>> taken = take_apart("A dog.\\n\\n  A cat. ")
    >>> taken.sentences, taken.joined(["Ein Hund.", "Eine Katze."])
    (('A dog.', 'A cat.'), 'Ein Hund.\\n\\n  Eine Katze. ')
    >>> take_apart("Dr. No left. We stay!").sentences
    ('Dr. No left.', 'We stay!')
    >>> take_apart("<p>A &amp; B <br>C</p>", is_html=True).joined(["<1>", "2"])
    '<p>&lt;1&gt; <br>2</p>'
    """
    between, sentences = [""], list[str]()
    for part, is_text in _html_parts(text) if is_html else [(text, True)]:
        for piece, is_sentence in _sentences(html.unescape(part) if is_html else part) if is_text else [(part, False)]:
            if is_sentence:
                sentences.append(piece)
                between.append("")
            else:
                between[-1] += html.escape(piece, quote=False) if is_html and is_text else piece
    return Taken(tuple(between), tuple(sentences), is_html)


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Parts of a text, which joined are the text, and whether each is a sentence."""
    for line, end in _lines(text):
        start = 0
        for stop, after in _cuts(line):
            yield from _stripped(line[start:stop])
            yield line[stop:after], False
            start = after
        yield from _stripped(line[start:])
        yield end, False


def _lines(text: str) -> Iterator[tuple[str, str]]:
    start = 0
    for found in LINE_END.finditer(text):
        yield text[start : found.start()], found[0]
        start = found.end()
    yield text[start:], ""


def _cuts(line: str) -> Iterator[tuple[int, int]]:
    """Where a sentence ends and the next one begins; none begins with a small letter, or behind an abbreviation."""
    for found in SENTENCE_END.finditer(line):
        start, end = found.span(found.lastindex or 0)
        if end < len(line) and not line[end].islower() and not ABBREVIATION.search(line, max(0, start - 4), start):
            yield start, end


def _stripped(text: str) -> Iterator[tuple[str, bool]]:
    inside = text.strip()
    if inside:
        start = text.index(inside)
        yield text[:start], False
        yield inside, True
        yield text[start + len(inside) :], False
    else:
        yield text, False


def _html_parts(text: str) -> Iterator[tuple[str, bool]]:
    """Stretches of text and of markup, which joined are the document; no character is looked at often."""
    start = place = 0
    while (place := text.find("<", place)) >= 0:
        end = _markup_end(text, place)
        if end < 0:  # a tag that never ends: the rest is text, as it is for a reader
            break
        if end == 0:  # no tag
            place += 1
            continue
        yield text[start:place], True
        yield text[place:end], False
        start = place = end
    yield text[start:], True


def _markup_end(text: str, start: int) -> int:
    """Where what begins with this `<` ends; 0 where it is no markup, -1 where it has no end."""
    if text.startswith("<!--", start):
        end = text.find("-->", start + 4)
        return len(text) if end < 0 else end + 3
    begun = MARKUP.match(text, start)
    if not begun:
        return 0
    end = _tag_end(text, begun.end())
    closed_by = CLOSED_BY.get((begun[1] or "").lower())
    if closed_by is None or end < 0 or text[start + 1] == "/":
        return end
    found = closed_by.search(text, end)
    return found.end() if found else len(text)


def _tag_end(text: str, place: int) -> int:
    """Behind the `>` that closes a tag; one between quotes does not. -1 where there is none."""
    quote = ""
    for i in range(place, len(text)):
        character = text[i]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == ">":
            return i + 1
    return -1
