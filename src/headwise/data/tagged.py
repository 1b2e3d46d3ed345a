"""Words with tags, such as names of persons and places or parts of speech: CoNLL's columns, or JSON lines.

A word and its tag stand on a line, an empty line between sentences; of more columns the first is the word and the last
the tag. A `.jsonl` file has a sentence on every line. A network reads pieces of words: the first piece of each is
labelled, and what else there is counts for nothing (`IGNORED`), as in the recipe of `transformers`. Not here: pieces
(`headwise.generation.tag`), and what is learnt from them (`headwise.tasks.tagging`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headwise.data.batch_planning import Rows
from headwise.data.corpus import json_object, read_lines
from headwise.data.labelled import EncodedText, LabelledBatch, LabelledDataset, collate_encoded
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.sources import display_name
from headwise.errors import UserError, unknown

FORMAT = "write 'word TAB tag' on every line, and an empty line between sentences"
JSON = '{"tokens": ["...", "..."], "tags": ["...", "..."]}'
DOCUMENT = "-DOCSTART-"  # CoNLL's line between documents
IGNORED = -100  # the class of what is no first piece of a word, as torch has it


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...]  # of the file, one for each word


def read_tagged(path: str) -> list[TaggedSentence]:
    """The sentences of a file.

    Raises:
        UserError: a line has one column, or is no such JSON; there is no sentence; or what `read_lines` raises.
    """
    read = _of_json if path.removesuffix(".gz").endswith(".jsonl") else _of_columns
    if found := list(read(path)):
        return found
    raise UserError(f"{display_name(path)}: has no sentence; {FORMAT}")


def _of_columns(path: str) -> Iterator[TaggedSentence]:
    rows: list[tuple[str, str, int]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(DOCUMENT):
            continue
        if line.strip():
            rows.append((*_columns(line, f"{display_name(path)}: line {number}"), number))
        elif rows:
            yield TaggedSentence(*zip(*rows, strict=True))
            rows = []
    if rows:
        yield TaggedSentence(*zip(*rows, strict=True))


def _columns(line: str, location: str) -> tuple[str, str]:
    columns = [column.strip() for column in (line.split("\t") if "\t" in line else line.split())]
    if len(columns) < 2 or not columns[0] or not columns[-1]:
        raise UserError(f"{location} has a word without a tag, or a tag without a word; {FORMAT}")
    return columns[0], columns[-1]


def _of_json(path: str) -> Iterator[TaggedSentence]:
    for number, line in enumerate(read_lines(path), start=1):
        location = f"{display_name(path)}: line {number}"
        record = json_object(line, location, JSON)
        words, tags = (_strings(record.get(key), f'{location}: "{key}"') for key in ("tokens", "tags"))
        if len(words) != len(tags):
            raise UserError(f"{location} has {len(words)} tokens and {len(tags)} tags; give every token one")
        if words:
            yield TaggedSentence(words, tags, (number,) * len(words))


def _strings(value: object, location: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise UserError(f"{location} must be a list of strings, none of them blank; write {JSON}")
    return tuple(value)


def count_tags(sentences: Iterable[TaggedSentence], origin: str) -> dict[str, int]:
    """The tags of the training files, sorted, and how often each stands there; two at least."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags)
    if len(counts) < 2:
        raise UserError(f"{origin}: every word has the tag '{next(iter(counts))}'; two tags are needed")
    return dict(sorted(counts.items()))


def check_tags(sentences: Iterable[TaggedSentence], tags: Sequence[str], origin: str) -> None:
    """`UserError` with file and line of the first tag that is not among `tags`."""
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            if tag not in tags:
                raise UserError(f"{origin}: line {line}: {unknown('tag', tag, tags)}; training has no such one")


# --- Batches ---


@dataclass(frozen=True)
class TaggedBatch(LabelledBatch):
    """Texts, padded on the right, and the class of each of their tokens."""

    labels: Int[Tensor, "batch src_len"]  # `IGNORED` but for the first piece of a word
    n_words: int = 0  # that have a class

    @property
    def n_targets(self) -> int:
        """Words: what the loss is a sum over."""
        return self.n_words


def collate_tagged(
    rows: Sequence[EncodedText], classes: Sequence[Sequence[int]], pad_id: int, typed: bool
) -> TaggedBatch:
    """Tensors of texts and of the classes of their tokens; `typed` as of `collate_encoded`.

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
    """Texts as a published network reads them, with the classes of their tokens, in memory."""

    classes: Sequence[Sequence[int]]  # of every token of each row

    def load(self, tokenizer: PairTokenizer, rows: Rows) -> TaggedBatch:
        """The batch of some rows."""
        chosen = rows.tolist()
        return collate_tagged(
            [self.rows[i] for i in chosen], [self.classes[i] for i in chosen], tokenizer.pad_id, self.typed
        )
