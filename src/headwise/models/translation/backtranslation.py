"""Back-translation (Sennrich et al. 2016, arXiv:1511.06709): training pairs from text in the target language.

A model for the opposite direction translates each line into the source language; the line itself is the target. Sampled
sources (`--sample`) are worse but more useful, given enough pairs (Edunov et al. 2018, arXiv:1808.09381). A tag before
each source, a token of its own, marks machine-translated text (Caswell et al. 2019, arXiv:1906.06442).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import tee

from headwise.runtime.search.repetition import is_repetitive
from headwise.runtime.search.translator import Translation
from headwise.text.files.scripts import split_words
from headwise.text.files.sources import Pair

BLANK, EMPTY, REPEATING = "blank line", "empty translation", "translation that repeats itself"


def back_translate(
    lines: Iterable[str],
    translate: Callable[[Iterable[str]], Iterable[Translation]],
    tag: str = "",
    left_out: Counter[str] | None = None,
) -> Iterator[Pair]:
    """Pairs of a translation and its line in the target language, in constant memory.

    Args:
        lines: text in the target language.
        translate: translates such lines into the source language, in order.
        tag: put before every source.
        left_out: counts lines without a pair, by reason.
    """
    left_out = Counter() if left_out is None else left_out
    ahead, behind = tee(_not_blank(lines, left_out))  # holds as many lines as `translate` reads ahead
    for line, found in zip(behind, translate(ahead), strict=True):
        if not found.text:
            left_out[EMPTY] += 1
        elif is_repetitive(found.pieces) and not is_repetitive(split_words(line)):
            left_out[REPEATING] += 1
        else:
            yield (f"{tag} {found.text}" if tag else found.text), line


def _not_blank(lines: Iterable[str], left_out: Counter[str]) -> Iterator[str]:
    for line in lines:
        if line.strip():
            yield line
        else:
            left_out[BLANK] += 1
