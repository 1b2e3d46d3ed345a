"""Tagged words, such as named entities or parts of speech: read CoNLL columns or JSON lines.

In CoNLL files each line has a word and its tag, with an empty line between sentences. The word is the first column, the
tag the last; of CoNLL-U (https://universaldependencies.org/format.html), which has ten, FORM and UPOS. A `.jsonl` file
has a sentence on every line. Batches are in `tagged`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from headwise.errors import UserError
from headwise.text.files.corpus import json_object, read_lines
from headwise.text.files.labelled_texts import check_class, count_classes
from headwise.text.files.sources import count_of, display_name

FORMAT = "write 'word TAB tag' on every line, and an empty line between sentences"
JSON = '{"tokens": ["...", "..."], "tags": ["...", "..."]}'
UNIVERSAL, INDEX = 10, re.compile(r"\d+([-.]\d+)?")  # columns of CoNLL-U, and the first of them
DOCUMENT = "-DOCSTART-"  # CoNLL's line between documents


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...]  # line number of each word


def read_tagged(path: str) -> list[TaggedSentence]:
    """The sentences of a file.

    Raises:
        UserError: a line is malformed, there is no sentence, or as `read_lines`.
    """
    read = _read_json if path.removesuffix(".gz").endswith(".jsonl") else _read_columns
    if sentences := list(read(path)):
        return sentences
    raise UserError(f"{display_name(path)}: has no sentence; {FORMAT}")


def _read_columns(path: str) -> Iterator[TaggedSentence]:
    width = 0
    for rows in _blocks(path):
        body = [*dropwhile(lambda row: row[0][0].startswith("#"), rows)]
        if body and len(body[0][0]) == UNIVERSAL and INDEX.fullmatch(body[0][0][0]):
            yield _universal(body, path)
            continue
        if body and any(len(columns) != len(body[0][0]) for columns, _ in rows[: -len(body)]):
            rows = body  # without comments
        location = f"{display_name(path)}: line {{}}".format
        if len(body) > 1 and [columns[0] for columns, _ in body] == [*map(str, range(1, len(body) + 1))]:
            raise UserError(f"{location(body[0][1])}: the first column numbers the words; {FORMAT}")
        width = width or len(rows[0][0])
        for columns, number in rows:
            if len(columns) < 2 or not columns[0] or not columns[-1]:
                raise UserError(f"{location(number)} has a word without a tag, or a tag without a word; {FORMAT}")
            if len(columns) != width:
                counts = f"{len(columns)} columns, but the lines before have {width}"
                raise UserError(f"{location(number)} has {counts}; separate them by tabs if a word has spaces")
        yield TaggedSentence(*zip(*((columns[0], columns[-1], number) for columns, number in rows), strict=True))


def _blocks(path: str) -> Iterator[list[tuple[list[str], int]]]:
    """The columns and the number of each line, up to the next empty line."""
    rows: list[tuple[list[str], int]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip() and not line.startswith(DOCUMENT):
            columns = line.split("\t") if "\t" in line else line.split()
            rows.append(([column.strip() for column in columns], number))
        elif rows and not line.strip():
            yield rows
            rows = []
    if rows:
        yield rows


def _universal(rows: Sequence[tuple[list[str], int]], path: str) -> TaggedSentence:
    """The words of a sentence in CoNLL-U with their parts of speech; without ranges (1-2) and empty nodes (1.1)."""
    words = list[tuple[str, str, int]]()
    for columns, number in rows:
        if len(columns) != UNIVERSAL or not INDEX.fullmatch(columns[0]):
            raise UserError(f"{display_name(path)}: line {number} is not CoNLL-U: ten columns, the first with numbers")
        if columns[0].isdecimal():
            words.append((columns[1], columns[3], number))
            if columns[3] == "_":
                raise UserError(f"{display_name(path)}: line {number} has no UPOS in column 4; {FORMAT}")
    if not words:
        raise UserError(f"{display_name(path)}: line {rows[0][1]}: a sentence without words; remove it")
    return TaggedSentence(*zip(*words, strict=True))


def _read_json(path: str) -> Iterator[TaggedSentence]:
    for number, line in enumerate(read_lines(path), start=1):
        location = f"{display_name(path)}: line {number}"
        record = json_object(line, location, JSON)
        words, tags = (_strings(record.get(key), f'{location}: "{key}"') for key in ("tokens", "tags"))
        if len(words) != len(tags):
            raise UserError(
                f"{location} has {count_of(len(words), 'token')} and {len(tags)} tags; give every token one tag"
            )
        if words:
            yield TaggedSentence(words, tags, (number,) * len(words))


def _strings(value: object, location: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise UserError(f"{location} must be a list of strings, none of them blank; write {JSON}")
    return tuple(value)


def count_tags(sentences: Iterable[TaggedSentence], origin: str) -> dict[str, int]:
    """The sorted tags of the training files with their counts; `UserError` if there is only one."""
    return count_classes((tag for sentence in sentences for tag in sentence.tags), origin, "word", "tag")


def check_tags(sentences: Iterable[TaggedSentence], tags: Sequence[str], origin: str) -> None:
    """`UserError` for the first tag that is not in `tags`."""
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            check_class(tag, tags, f"{origin}: line {line}", "tag")
