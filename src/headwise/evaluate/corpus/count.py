"""One pass through the files of a set: numbers for each pair, counts for each side, and a sample of the text.

A pair takes 24 bytes of memory: two keys (`text/files/sentences.py`) and two lengths.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from jaxtyping import Bool, Int64, UInt32

from headwise.evaluate.corpus.characters import check_characters
from headwise.text.files.corpus import Corpus, read_pairs
from headwise.text.files.sentences import EMPTY, SentenceKeys, pair_keys, sentence_key
from headwise.text.files.sources import CachedCopy, Pair, display_name

SAMPLE = 50_000  # pairs for training the tokenizer and counting words, at most
SHOWN = 5  # locations of a finding
SIDES = ("source", "target")


@dataclass
class FoundRows:
    """The number of pairs with a property, and the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, row: int) -> None:
        self.count += 1
        if self.count <= SHOWN:
            self.first.append(row)

    @classmethod
    def of(cls, rows: Int64[np.ndarray, " found"]) -> "FoundRows":
        return cls(len(rows), rows[:SHOWN].tolist())

    @classmethod
    def where(cls, flags: Bool[np.ndarray, " pairs"]) -> "FoundRows":
        return cls.of(np.flatnonzero(flags))


@dataclass
class SideCounts:
    """One side of all pairs of a set."""

    characters: Counter[str] = field(default_factory=Counter)
    words: int = 0
    faults: dict[str, FoundRows] = field(default_factory=dict)
    scripts: dict[frozenset[str], FoundRows] = field(default_factory=dict)  # pairs by the scripts of their letters

    def add(self, row: int, text: str) -> None:
        self.characters.update(text)
        self.words += len(text.split())
        faults, scripts = check_characters(text)
        for fault in faults:
            self.faults.setdefault(fault, FoundRows()).add(row)
        if scripts:
            self.scripts.setdefault(scripts, FoundRows()).add(row)


@dataclass(frozen=True)
class Counted:
    """A set of pairs with its counts."""

    name: str
    corpora: Sequence[Corpus]
    starts: list[int]  # first row of each corpus
    sides: tuple[SideCounts, SideCounts]
    src: SentenceKeys
    tgt: SentenceKeys
    src_lengths: UInt32[np.ndarray, " pairs"]  # characters
    tgt_lengths: UInt32[np.ndarray, " pairs"]
    sample: list[Pair]

    def __len__(self) -> int:
        return len(self.src)

    @property
    def blank(self) -> Bool[np.ndarray, " pairs"]:
        """Whether a side is empty."""
        return (self.src == EMPTY) | (self.tgt == EMPTY)

    @property
    def pairs(self) -> SentenceKeys:
        """A key for each pair."""
        return pair_keys(self.src, self.tgt)

    def location(self, row: int) -> str:
        """File and line of a pair, or its number in a memory; only that if there is one corpus."""
        number = bisect_right(self.starts, row) - 1
        path = self.corpora[number].paths[0]
        line = f"{'pair' if isinstance(path, CachedCopy) else 'line'} {row - self.starts[number] + 1:,}"
        return line if len(self.corpora) == 1 else f"{display_name(path)} {line}"


def count_pairs(name: str, corpora: Sequence[Corpus]) -> Counted:
    """Read a set once.

    Raises:
        UserError: as `read_pairs`.
    """
    keys, lengths, sides = (array("Q"), array("Q")), (array("I"), array("I")), (SideCounts(), SideCounts())
    starts, sample, step = [0], [], 1
    rows = count()
    for corpus in corpora:
        for row, pair in zip(rows, read_pairs([corpus]), strict=False):
            for text, side, key, length in zip(pair, sides, keys, lengths, strict=True):
                side.add(row, text)
                key.append(sentence_key(text))
                length.append(len(text))
            if row % step == 0:
                sample.append(pair)
                if len(sample) > SAMPLE:  # every second one, so that the sample covers the files evenly
                    sample, step = sample[::2], 2 * step
        starts.append(len(keys[0]))
        rows = count(len(keys[0]))
    src, tgt = (np.array(side, np.uint64) for side in keys)
    src_lengths, tgt_lengths = (np.array(side, np.uint32) for side in lengths)
    return Counted(name, corpora, starts[:-1], sides, src, tgt, src_lengths, tgt_lengths, sample)


def numbered_pairs(counted: Counted) -> Iterator[tuple[int, Pair]]:
    """The pairs of a set with their rows, read again."""
    return enumerate(read_pairs(counted.corpora))
