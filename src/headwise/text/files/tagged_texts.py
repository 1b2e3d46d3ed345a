"""Tagged words, such as named entities or parts of speech: read CoNLL columns or JSON lines.

In CoNLL files each line has a word and its tag, with an empty line between sentences. The word is the first column, the
tag the last. A `.jsonl` file has a sentence on every line. Batches are in `tagged`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headwise.errors import UserError
from headwise.text.files.corpus import json_object, read_lines
from headwise.text.files.labelled_texts import check_class, count_classes
from headwise.text.files.sources import count_of, display_name

FORMAT = "write 'word TAB tag' on every line, and an empty line between sentences"
JSON = '{"tokens": ["...", "..."], "tags": ["...", "..."]}'
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
    rows: list[tuple[str, str, int]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(DOCUMENT):
            continue
        if line.strip():
            rows.append((*_word_and_tag(line, f"{display_name(path)}: line {number}"), number))
        elif rows:
            yield TaggedSentence(*zip(*rows, strict=True))
            rows = []
    if rows:
        yield TaggedSentence(*zip(*rows, strict=True))


def _word_and_tag(line: str, location: str) -> tuple[str, str]:
    columns = [column.strip() for column in (line.split("\t") if "\t" in line else line.split())]
    if len(columns) < 2 or not columns[0] or not columns[-1]:
        raise UserError(f"{location} has a word without a tag, or a tag without a word; {FORMAT}")
    return columns[0], columns[-1]


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
