"""The translation memory of the segment pipeline: exact matches replace translation, fuzzy ones are offered.

A match is exact if text and codes are equal, apart from the number of blanks. The pipeline looks up whole units first,
then their lines, then their sentences. See `memory` for training pairs from memories.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from headwise.documents import MEMORIES, is_memory
from headwise.documents.markup.markers import with_codes_of
from headwise.documents.markup.placeholders import adds_codes, with_codes
from headwise.documents.memory import exclusion_reason, read_memories
from headwise.documents.sentences import SentenceSpan
from headwise.documents.unit import Code, Parts, codes_of, join_parts, plain
from headwise.errors import UserError
from headwise.text.files.scripts import split_words

MIN_SCORE = 0.7  # of a fuzzy match
MAX_CANDIDATES = 5000  # segments that a text is compared with
MIN_POSTINGS = 200  # segments of a word that is rare enough to find candidates by it alone
Recall = Callable[[Parts], Parts | None]  # the translation of a segment in a memory


@dataclass(frozen=True)
class MemoryMatch:
    """A segment of a memory that is like a text."""

    source: str
    target: str
    score: float  # MIN_SCORE to 1: the share of equal characters, by `rapidfuzz.fuzz.ratio`; 1 = exact


BestMatch = Callable[[Parts], MemoryMatch | None]  # the most similar segment of a memory


class SegmentMemory:
    """Segments with their translations."""

    def __init__(self, segments: Mapping[str, str]) -> None:
        """`segments` are targets by `memory_key`."""
        self._targets = dict(segments)

    def __len__(self) -> int:
        return len(self._targets)

    def known(self, keys: Sequence[str]) -> dict[str, str]:
        """The targets of those keys that it has."""
        return {key: self._targets[key] for key in keys if key in self._targets}

    def recall(self, parts: Parts) -> Parts | None:
        """The translation of a segment, if there is an exact match."""
        return recall(parts, self._targets)

    def best_match(self, parts: Parts) -> MemoryMatch | None:
        """The most similar segment, if its score is at least `MIN_SCORE`.

        Candidates share a word of the text's rarer half, and have a length that permits such a score.

        Raises:
            UserError: rapidfuzz is not installed.
        """
        key = memory_key(parts)
        if key in self._targets:
            return MemoryMatch(key, self._targets[key], 1.0)
        try:
            from rapidfuzz import fuzz, process
        except ImportError:
            raise UserError('fuzzy matches need rapidfuzz: pip install "headwise[files]"') from None
        found = process.extractOne(key, self._candidates(key), scorer=fuzz.ratio, score_cutoff=100 * MIN_SCORE)
        return MemoryMatch(found[0], self._targets[found[0]], found[1] / 100) if found else None

    def _candidates(self, key: str) -> list[str]:
        """Segments that may be similar, in the order of their lengths, `MAX_CANDIDATES` at most."""
        keys, lengths, segments_of = self._index
        ratio = MIN_SCORE / (2 - MIN_SCORE)  # of the lengths of two texts with this score
        first = bisect_left(lengths, int(len(key) * ratio))
        end = bisect_right(lengths, int(len(key) / ratio) + 1)
        words = sorted({word for word in split_words(key) if word in segments_of}, key=lambda w: len(segments_of[w]))
        found: dict[int, None] = {}
        for number, word in enumerate(words):
            if len(found) >= MAX_CANDIDATES or (number > len(words) // 2 and len(found) > MIN_POSTINGS):
                break
            numbers = segments_of[word]
            found |= dict.fromkeys(numbers[bisect_left(numbers, first) : bisect_left(numbers, end)])
        return [keys[n] for n in list(found)[:MAX_CANDIDATES]]

    @cached_property
    def _index(self) -> tuple[list[str], list[int], Mapping[str, list[int]]]:
        """The keys by length, their lengths, and the numbers of the keys that have a word."""
        keys = sorted(self._targets, key=len)
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, key in enumerate(keys):
            for word in set(split_words(key)):
                numbers[word].append(number)
        return keys, [len(key) for key in keys], numbers


def match_values(match: MemoryMatch) -> dict[str, Any]:
    """A match as a JSON value."""
    return {"score": round(match.score, 4), "source": match.source, "target": match.target}


def memory_key(parts: Parts) -> str:
    """The text by which a segment is found: with its codes, and with single blanks.

    >>> memory_key(("a ", Code("<b>"), " dog "))
    'a <b> dog'
    """
    return " ".join(plain(parts).split())


def recall(parts: Parts, known: Mapping[str, str]) -> Parts | None:
    """The translation of a segment among `known` ones, with the codes of the segment."""
    target = known.get(memory_key(parts))
    if not target:
        return None
    codes = codes_of(parts)
    if not codes:
        return None if adds_codes(parts, (target,)) else (target,)
    return with_codes_of(target, codes)


def segment_keys(spans: Sequence[SentenceSpan]) -> Iterator[str]:
    """The keys of a unit, of its lines, and of its sentences."""
    yield memory_key(_joined(spans).parts)
    for line in _lines(spans):
        yield memory_key(_joined(line).parts)
        yield from (memory_key(span.parts) for span in line)


def merge_known(spans: Sequence[SentenceSpan], recall_parts: Recall) -> list[SentenceSpan]:
    """The sentences of a unit, as one if a memory has the whole unit; otherwise those of each line that it has."""
    if len(spans) < 2:
        return list(spans)
    whole = _joined(spans)
    if recall_parts(whole.parts):
        return [whole]
    merged: list[SentenceSpan] = []
    for line in _lines(spans):
        one = _joined(line)
        merged += [one] if len(line) > 1 and recall_parts(one.parts) else line
    return merged


def _lines(spans: Sequence[SentenceSpan]) -> Iterator[list[SentenceSpan]]:
    return (list(line) for _, line in groupby(spans, lambda span: bool(span.parts)))


def _joined(spans: Sequence[SentenceSpan]) -> SentenceSpan:
    """Adjacent sentences as one; what is behind the last one with parts stays behind it."""
    last = max((n for n, span in enumerate(spans) if span.parts), default=-1)
    pieces: list[str | Code] = []
    for n, span in enumerate(spans[: last + 1]):
        pieces += [*span.parts, span.behind * (n < last)]
    return SentenceSpan(join_parts(pieces), "".join(span.behind for span in spans[max(last, 0) :]))


def read_segment_memory(paths: Sequence[str], languages: Sequence[str] = ("", "")) -> SegmentMemory:
    """The translated units of memories; the first translation of a segment is used.

    Args:
        paths: files in the formats of `MEMORIES`.
        languages: codes of source and target, for files with several languages; "" = as declared.

    Raises:
        UserError: another format, or as for `reading.read_document`.
    """
    segments: dict[str, str] = {}
    for path in paths:
        if not is_memory(path):
            raise UserError(f"--memory {path}: not a translation memory; use files in {', '.join(MEMORIES)}")
    for document, _ in read_memories(paths, languages):
        for unit in document.units:
            source, target = (with_codes(parts, unit.markup) for parts in (unit.source, unit.target))
            if not exclusion_reason(unit) and _codes(source) == _codes(target):
                segments.setdefault(memory_key(source), plain(target).strip())
    return SegmentMemory(segments)


def _codes(parts: Parts) -> Counter[str]:
    return Counter(code.text for code in codes_of(parts))
