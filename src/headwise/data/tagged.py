"""Tagged words, such as named entities or parts of speech: read CoNLL columns or JSON lines, and build batches.

In CoNLL files each line has a word and its tag, with an empty line between sentences. The word is the first column, the
tag the last. A `.jsonl` file has a sentence on every line. Only the first token of each word is labelled; all other
tokens are `IGNORED`, as in the recipe of `transformers`. Tokenization is in `headwise.generation.tag`, training in
`headwise.tasks.tagging`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headwise.data.batch_planning import Rows
from headwise.data.corpus import json_object, read_lines
from headwise.data.labelled import EncodedText, LabelledBatch, LabelledDataset, collate_encoded
from headwise.data.labelled_texts import check_class, count_classes
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.sources import display_name
from headwise.errors import UserError

FORMAT = "write 'word TAB tag' on every line, and an empty line between sentences"
JSON = '{"tokens": ["...", "..."], "tags": ["...", "..."]}'
DOCUMENT = "-DOCSTART-"  # CoNLL's line between documents
IGNORED = -100  # the label of other tokens, ignored by torch losses


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
            raise UserError(f"{location} has {len(words)} tokens and {len(tags)} tags; give every token one tag")
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


# --- Batches ---


@dataclass(frozen=True)
class TaggedBatch(LabelledBatch):
    """Texts, padded on the right, with the class of each token."""

    labels: Int[Tensor, "batch src_len"]  # `IGNORED` except at the first token of a word
    n_words: int = 0  # labelled words

    @property
    def n_targets(self) -> int:
        return self.n_words


def collate_tagged(
    rows: Sequence[EncodedText], classes: Sequence[Sequence[int]], pad_id: int, typed: bool
) -> TaggedBatch:
    """Build the tensors of a batch; `typed` as for `collate_encoded`.

    >>> rows = [EncodedText([8, 5, 2], 3), EncodedText([8, 2], 2)]
    >>> batch = collate_tagged(rows, [[-100, 1, -100], [-100, -100]], 0, typed=False)
    >>> batch.labels.tolist(), batch.n_targets
    ([[-100, 1, -100], [-100, -100, -100]], 1)
    """
    batch = collate_encoded(rows, [0] * len(rows), pad_id, typed)
    labels = torch.full_like(batch.src, IGNORED)
    labels[batch.src_mask] = torch.from_numpy(np.concatenate([np.asarray(one, np.int64) for one in classes]))
    n_words = int((labels != IGNORED).sum())
    return TaggedBatch(batch.src, batch.src_mask, labels, batch.n_real, batch.types, n_words)


@dataclass(frozen=True)
class TaggedDataset(LabelledDataset):
    """Texts for a pretrained network with the classes of their tokens, in memory."""

    classes: Sequence[Sequence[int]]  # of every token of each text

    def load(self, tokenizer: PairTokenizer, rows: Rows) -> TaggedBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        return collate_tagged(
            [self.rows[i] for i in chosen], [self.classes[i] for i in chosen], tokenizer.pad_id, self.typed
        )
