"""Whether the lines of text files are sequences of their own (proteins, SMILES, queries) or running text.

A masked language model reads a sequence between special tokens of its own, as it was trained to; running text is read
in blocks that run over line ends. Each way gives poor predictions for the other kind of text. See `documents` for
tokens, `masking` for masks and `masked_sequences` for batches.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from headwise.text.files.corpus import read_lines
from headwise.text.files.documents import DocumentTokenizer, has_documents
from headwise.text.files.sources import count_of, display_name

SAMPLE = 10_000  # lines at the start of each file that decide
TOGETHER = 100  # lines tokenised at once
BLANK = 0.01  # share of blank lines above which they separate documents
SIGNIFICANT = 3.0  # standard errors by which neighbouring lines are more similar than others: they form documents
AUTO, LINES, BLOCKS = READINGS = ("auto", "lines", "blocks")


@dataclass(frozen=True)
class TextReading:
    """The way in which text is read, with the reason."""

    by_line: bool
    reason: str

    def tokenizer(self, tokenizer: DocumentTokenizer) -> DocumentTokenizer:
        """The tokenizer of documents; lines get their special tokens later."""
        return replace(tokenizer, prefix=[], suffix=[]) if self.by_line else tokenizer

    def __str__(self) -> str:
        return f"{'each line is a sequence' if self.by_line else 'running text in blocks'} ({self.reason})"


def choose_reading(paths: Sequence[str], choice: str, tokenizer: DocumentTokenizer, room: int) -> TextReading:
    """The way in which files are read: `choice`, one of `READINGS`, or the one that their first lines suggest.

    Lines are sequences of their own if none has more than `room` tokens, hardly any is blank, and neighbouring lines
    are no more similar than others, unless they are sorted. A `.jsonl` file has a document on each line. In doubt, such
    as for a few lines, they are sequences: a model of running text loses little with them, but one of sequences fails
    in blocks.
    """
    if choice != AUTO:
        return TextReading(choice == LINES, "as requested")
    for path in paths:
        if has_documents(path):
            return TextReading(False, f"{display_name(path)} has documents")
        lines = list(islice(read_lines(path, allow_empty=True), SAMPLE))
        if reason := _reason_for_blocks(lines, tokenizer, room):
            return TextReading(False, f"{display_name(path)}: {reason}")
    return TextReading(True, "lines are short and independent")


def _reason_for_blocks(lines: Sequence[str], tokenizer: DocumentTokenizer, room: int) -> str:
    """Why lines are running text; empty if they are independent."""
    filled = [line for line in lines if line.strip()]
    if len(lines) - len(filled) > BLANK * len(lines) + 1:  # one may be at the end of the file
        return "blank lines separate documents"
    for at in range(0, len(filled), TOGETHER):  # documents are recognised by the first ones
        longest = max(map(len, tokenizer.encode_batch(filled[at : at + TOGETHER])))
        if longest > room:
            return f"a line has {count_of(longest, 'token')}, and {room:,} fit"
    is_list = filled == sorted(filled)  # neighbours are similar because they are sorted
    related = not is_list and neighbours_similarity(filled) > SIGNIFICANT
    return "neighbouring lines share many words" if related else ""


def neighbours_similarity(lines: Sequence[str]) -> float:
    """By how many standard errors neighbouring lines share more words than lines at random.

    Words count by their rarity, log(lines / lines with the word). Pairs of equal lines do not count, because sorted
    sequences have them.
    """
    words = [_words(line) for line in lines]
    found = Counter(word for line in words for word in line)
    weight = {word: math.log(len(lines) / count) for word, count in found.items()}
    others = np.random.default_rng(0).permutation(len(lines)).tolist()

    def shared(one: int, other: int) -> float:
        return math.fsum(sorted(weight[word] for word in words[one] & words[other]))

    pairs = [(i, other) for i, other in enumerate(others[:-1]) if len({*lines[i : i + 2], lines[other]}) == 3]
    more = np.array([shared(i, i + 1) - shared(i, other) for i, other in pairs])
    deviation = more.std() if len(more) else 0.0
    return float(more.mean() / deviation * math.sqrt(len(more))) if deviation > 0 else 0.0


def _words(line: str) -> frozenset[str]:
    """The words of a line; pairs of characters where words have no spaces between them (Chinese).

    >>> sorted(_words("A dog runs")), sorted(_words("CC(=O)O")), len(_words("一二三"))
    (['A', 'dog', 'runs'], ['CC(=O)O'], 2)
    """
    words = line.split()
    if len(words) > 1 or line.isascii():
        return frozenset(words)
    return frozenset(line[i : i + 2] for i in range(len(line) - 1))
