"""Whether an output repeats itself."""

from collections.abc import Sequence
from itertools import accumulate

pass

OFTEN = 4  # times that a stretch of words stands in a row where a search has found no end


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


LONGEST = 60  # pieces of such a stretch: time is to grow with the text, not with its square
