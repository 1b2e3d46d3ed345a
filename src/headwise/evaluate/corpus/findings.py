"""Problems of sets of pairs: from the counts, and from a second pass that uses the results of the first."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int64

from headwise.config.data import PairData
from headwise.evaluate.corpus.characters import ADVICE, scripts, usual
from headwise.evaluate.corpus.count import SIDES, Counted, FoundRows, numbered_pairs
from headwise.text.files.scripts import word_pattern
from headwise.text.files.sentences import EMPTY, SentenceKeys
from headwise.text.files.sources import Pair
from headwise.text.prepared.prepared import chunks
from headwise.text.tokens.tokenize_pairs import drop_reason
from headwise.text.tokens.tokenizer import Tokenizer

UNEVEN = 3.0  # factor by which the length ratio of a reported pair differs from the median
SHORT = 20  # characters; shorter texts often have such ratios
CLEARLY = 6.0  # log-odds of a text's words that decide its language
FREQUENT = 5  # occurrences of a word in the sample to count
DROPPED = "training drops them"
EMPTY_SIDE = "one side is empty"  # as in `drop_reason`


@dataclass(frozen=True)
class Finding:
    """A problem of some pairs of a set."""

    title: str
    side: str  # "source", "target", or "" for both
    rows: FoundRows
    advice: str
    as_in: dict[int, str] = field(default_factory=dict)  # location of the first occurrence, by row


@dataclass(frozen=True)
class Survey:
    """A set and its findings."""

    counted: Counted
    findings: list[Finding]
    texts: dict[int, Pair]  # of the rows in findings
    kept: int  # pairs that training keeps; for other sets all


@dataclass(frozen=True)
class Leak:
    """Pairs of `held`, a validation or test set, that are also (in part) in `other`."""

    held: str
    other: str
    what: str  # "pair", "source" or "target"
    rows: FoundRows
    as_in: dict[int, str]


def survey(
    counted: Counted, odds: dict[str, float], tokenizer: Tokenizer | None, config: PairData, leaking: Sequence[Leak]
) -> Survey:
    """All findings of one set.

    Args:
        odds: see `word_odds`.
        tokenizer: counts tokens, to find pairs that training drops; None for a validation or test set.
        leaking: the leaks of this set.
    """
    findings = [*_repeats(counted), *_uneven(counted), *_sides(counted)]
    named = {row for found in (*findings, *leaking) for row in found.rows.first}
    texts: dict[int, Pair] = {}
    languages, drops = _Languages(odds), dict[str, FoundRows]()
    for chunk in chunks(numbered_pairs(counted)):
        for row, pair in chunk:
            if languages.add(row, pair) or row in named:
                texts[row] = pair
        if tokenizer:
            _drops(chunk, tokenizer, config, drops, texts)
    dropped = [Finding(f"{reason}: {DROPPED}", "", rows, "") for reason, rows in sorted(drops.items())]
    if not tokenizer and counted.blank.any():
        dropped = [Finding(EMPTY_SIDE, "", FoundRows.where(counted.blank), "a score of such a pair means nothing")]
    kept = len(counted) - sum(rows.count for rows in drops.values())
    found = [finding for finding in (*dropped, *languages.findings(), *findings) if finding.rows.count]
    return Survey(counted, found, texts, kept)


def _drops(
    chunk: Sequence[tuple[int, Pair]],
    tokenizer: Tokenizer,
    config: PairData,
    drops: dict[str, FoundRows],
    texts: dict[int, Pair],
) -> None:
    """Count the pairs that training would drop, by reason."""
    sides = [tokenizer.encode_batch([pair[side] for _, pair in chunk]) for side in (0, 1)]
    for (row, (src, tgt)), src_pieces, tgt_pieces in zip(chunk, *sides, strict=True):
        reason = drop_reason(src, tgt, len(src_pieces), len(tgt_pieces), config)
        if reason:
            found = drops.setdefault(reason, FoundRows())
            found.add(row)
            if row in found.first:
                texts[row] = src, tgt


def _repeats(counted: Counted) -> Iterator[Finding]:
    """Repeated pairs, repeated sides, and the same text on both sides."""
    blank = counted.blank
    pairs = repeated(counted.pairs, blank)
    yield _seen_before(counted, pairs, counted.pairs, "the same pair as before", "", "repeats weigh more in training")
    for side, keys in zip(SIDES, (counted.src, counted.tgt), strict=True):
        rows = np.setdiff1d(repeated(keys, blank), pairs, assume_unique=True)
        other = SIDES[side == "source"]
        title, advice = f"the same {side} as before with another {other}", "fine if several translations are right"
        yield _seen_before(counted, rows, keys, title, side, advice)
    same = FoundRows.where((counted.src == counted.tgt) & ~blank)
    yield Finding("the same text on both sides", "", same, "untranslated? Names and numbers may be; sentences not")


def repeated(keys: SentenceKeys, without: np.ndarray) -> Int64[np.ndarray, " found"]:
    """Rows whose key occurs in an earlier row.

    >>> repeated(np.array([5, 7, 5, 5], np.uint64), np.zeros(4, bool)).tolist()
    [2, 3]
    """
    rows = np.flatnonzero(~without)
    order = rows[np.argsort(keys[rows], kind="stable")]
    return np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])


def _seen_before(
    counted: Counted, rows: Int64[np.ndarray, " found"], keys: SentenceKeys, title: str, side: str, advice: str
) -> Finding:
    found = FoundRows.of(rows)
    as_in = {row: counted.location(int(np.argmax(keys == keys[row]))) for row in found.first}
    return Finding(title, side, found, advice, as_in)


def log_ratios(counted: Counted) -> Float[np.ndarray, " pairs"]:
    """log2 of target characters per source character, for pairs with two sides."""
    there = ~counted.blank
    return np.log2(counted.tgt_lengths[there]) - np.log2(counted.src_lengths[there])


def _uneven(counted: Counted) -> Iterator[Finding]:
    ratios, there = log_ratios(counted), np.flatnonzero(~counted.blank)
    if len(there) == 0:
        return
    longer = np.maximum(counted.src_lengths, counted.tgt_lengths)[there] >= SHORT
    middle = float(np.median(ratios))
    rows = there[longer & (np.abs(ratios - middle) > math.log2(UNEVEN))]
    title = (
        f"unusual length ratio ({UNEVEN:g} times off the usual {2**middle:.2g} target characters per source character)"
    )
    yield Finding(title, "", FoundRows.of(rows), "often no translation of each other, or a part is missing")


def _sides(counted: Counted) -> Iterator[Finding]:
    for name, side in zip(SIDES, counted.sides, strict=True):
        for title, advice in ADVICE.items():
            if title in side.faults:
                yield Finding(title, name, side.faults[title], advice)
        main = usual(scripts(side.characters))
        foreign = FoundRows()
        for found, rows in side.scripts.items():
            if main and not found & main:
                foreign.count += rows.count
                foreign.first += rows.first
        foreign.first = sorted(foreign.first)[:5]
        title = f"in another script than the rest ({', '.join(sorted(main))})"
        yield Finding(title, name, foreign, "another language, or only a name")


# Languages -----------------------------------------------------------------------------------------------------------


def word_odds(sample: Sequence[Pair]) -> dict[str, float]:
    """The log-odds of each frequent word between sources and targets.

    Words that occur about equally on both sides are left out, so all are if both sides are in one language.
    """
    counts = [Counter(word for pair in sample for word in words_to_compare(pair[side])) for side in (0, 1)]
    src, tgt = counts
    total = [sum(side.values()) + 1 for side in counts]
    odds = {
        word: math.log((src[word] + 0.5) / total[0]) - math.log((tgt[word] + 0.5) / total[1])
        for word in src.keys() | tgt.keys()
        if src[word] + tgt[word] >= FREQUENT
    }
    return {word: value for word, value in odds.items() if abs(value) > 1}


def words_to_compare(text: str) -> list[str]:
    """
    >>> words_to_compare("Ein Hund, 2 犬")
    ['ein', 'hund', '犬']
    """
    return [word for word in word_pattern().findall(text.lower()) if word[0].isalpha()]


class _Languages:
    """Collects pairs with a side in the language of the other side."""

    def __init__(self, odds: dict[str, float]) -> None:
        self.odds = odds
        self.found = {"swapped": FoundRows(), "source": FoundRows(), "target": FoundRows()}

    def add(self, row: int, pair: Pair) -> bool:
        """Whether the pair is one of the first of its kind."""
        src, tgt = (sum(self.odds.get(word, 0.0) for word in words_to_compare(text)) for text in pair)
        kind = ""
        if src < -CLEARLY:
            kind = "swapped" if tgt > CLEARLY else "source" if tgt < -CLEARLY else ""
        elif tgt > CLEARLY and src > CLEARLY:
            kind = "target"
        if kind:
            self.found[kind].add(row)
        return bool(kind) and row in self.found[kind].first

    def findings(self) -> Iterator[Finding]:
        yield Finding("swapped: each side in the other's language", "", self.found["swapped"], "exchange the two")
        yield Finding("in the target's language", "source", self.found["source"], "a misaligned line, or not a source")
        yield Finding("in the source's language", "target", self.found["target"], "untranslated? Remove them")


# Leaks ---------------------------------------------------------------------------------------------------------------


def find_leaks(held: Counted, other: Counted) -> Iterator[Leak]:
    """Pairs, sources and targets of a validation or test set that another set has, too."""
    there = ~held.blank
    for what, own, others in (
        ("pair", held.pairs, other.pairs),
        ("source", held.src, other.src),
        ("target", held.tgt, other.tgt),
    ):
        known = np.unique(others[others != EMPTY])
        rows = FoundRows.where(np.isin(own, known) & there)
        as_in = {row: other.location(int(np.argmax(others == own[row]))) for row in rows.first}
        yield Leak(held.name, other.name, what, rows, as_in)
