"""Back-translation (Sennrich et al. 2016, arXiv:1511.06709): plain text of the target language, made into pairs.

A model of the other direction translates each line back into the source language; the line itself, written by people,
is the target. Drawn at random (`--sample`) the sources are worse and teach more, given pairs enough (Edunov et al.
2018, arXiv:1808.09381); a tag before each of them, a piece of its own, tells the model what a machine wrote (Caswell et
al. 2019, arXiv:1906.06442). Not here: training on both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, tee

from sightline.data.corpus import Pair
from sightline.data.scripts import words
from sightline.decode.translator import Translation

OFTEN = 4  # times that a stretch of words stands in a row where a search has found no end
LONGEST = 60  # pieces of such a stretch: time is to grow with the text, not with its square
BLANK, EMPTY, REPEATING = "blank line", "empty translation", "translation that repeats itself"


def back_translate(
    lines: Iterable[str],
    translate: Callable[[Iterable[str]], Iterable[Translation]],
    tag: str = "",
    left_out: Counter[str] | None = None,
) -> Iterator[Pair]:
    """Each line of the target language as the target of what a model makes of it; in constant memory.

    Args:
        lines: of the target language.
        translate: such lines into the source language, in order.
        tag: put before every source.
        left_out: counts the lines that gave no pair, by reason.
    """
    left_out = Counter() if left_out is None else left_out
    ahead, behind = tee(_not_blank(lines, left_out))  # holds as many lines as `translate` reads ahead
    for line, found in zip(behind, translate(ahead), strict=True):
        if not found.text:
            left_out[EMPTY] += 1
        elif repeats_itself(found.pieces) and not repeats_itself(words(line)):
            left_out[REPEATING] += 1
        else:
            yield (f"{tag} {found.text}" if tag else found.text), line


def _not_blank(lines: Iterable[str], left_out: Counter[str]) -> Iterator[str]:
    for line in lines:
        if line.strip():
            yield line
        else:
            left_out[BLANK] += 1


def repeats_itself(pieces: Sequence[str]) -> bool:
    """Whether a stretch with a letter in it stands `OFTEN` times in a row: not so digits and punctuation.

    >>> repeats_itself("so a dog a dog a dog a dog".split()), repeats_itself("1 0 0 0 0 0 dogs".split())
    (True, False)
    >>> repeats_itself("it is very very very late".split())
    False
    """
    has_letter = [any(map(str.isalpha, piece)) for piece in pieces]
    letters_before = [0, *accumulate(has_letter)]
    for n in range(1, min(LONGEST, len(pieces) // OFTEN) + 1):
        run = 0
        for i in range(len(pieces) - n):
            run = run + 1 if pieces[i] == pieces[i + n] else 0
            if run >= (OFTEN - 1) * n and letters_before[i + n] > letters_before[i]:
                return True
    return False
