"""Detects outputs that repeat themselves."""

from collections.abc import Sequence
from itertools import accumulate

MIN_REPEATS = 4  # consecutive copies of a phrase that mark a degenerate output
LONGEST = 60  # longest phrase, pieces, so that the time grows linearly with the text


def is_repetitive(pieces: Sequence[str]) -> bool:
    """Whether a phrase with a letter in it occurs `MIN_REPEATS` times in a row.

    >>> is_repetitive("so a dog a dog a dog a dog".split()), is_repetitive("1 0 0 0 0 0 dogs".split())
    (True, False)
    >>> is_repetitive("it is very very very late".split())
    False
    """
    has_letter = [any(map(str.isalpha, piece)) for piece in pieces]
    letters_before = [0, *accumulate(has_letter)]
    for n in range(1, min(LONGEST, len(pieces) // MIN_REPEATS) + 1):
        run = 0
        for i in range(len(pieces) - n):
            run = run + 1 if pieces[i] == pieces[i + n] else 0
            if run >= (MIN_REPEATS - 1) * n and letters_before[i + n] > letters_before[i]:
                return True
    return False
