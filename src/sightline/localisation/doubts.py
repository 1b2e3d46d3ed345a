"""Why a reviewer should look at a translation first: what can be seen without knowing either language.

Thresholds are for telling the few that are wrong, not for judging the many.
"""

import re

from sightline.backtranslation import repeats_itself
from sightline.data.scripts import letters, words
from sightline.localisation.carrying import uncoded
from sightline.localisation.unit import Parts

SHORTEST, LONGEST = 0.4, 2.5  # letters of a translation to one of its source, by `scripts.letters`
FEW = 20  # letters; lengths of texts below say nothing
UNSURE = -1.5  # natural log-probability of a piece, on average
NUMBER = re.compile(r"\d+")

SHORT, LONG = "much shorter than its source", "much longer than its source"
REPEATS, COPIED, NUMBERS, IMPROBABLE = "repeats itself", "the same as its source", "other numbers", "improbable"


def doubts(source: Parts, target: Parts, log_prob: float) -> tuple[str, ...]:
    """What is odd about a translation.

    >>> doubts(("Open 3 files in the editor",), ("Open 3 files in the editor",), -0.1)
    ('the same as its source',)
    >>> doubts(("Open 3 files in the editor",), ("12 Dateien im Editor oeffnen",), -0.1)
    ('other numbers',)
    """
    src, tgt = uncoded(source), uncoded(target)
    n_src, n_tgt = letters(src), letters(tgt)
    ratio = n_tgt / max(1, n_src)
    found = {
        SHORT: n_src >= FEW and ratio < SHORTEST,
        LONG: n_tgt >= FEW and ratio > LONGEST,
        REPEATS: repeats_itself(words(tgt)) and not repeats_itself(words(src)),
        COPIED: len(words(src)) > 2 and src.lower() == tgt.lower(),
        NUMBERS: sorted(NUMBER.findall(src)) != sorted(NUMBER.findall(tgt)),
        IMPROBABLE: log_prob < UNSURE,
    }
    return tuple(name for name, holds in found.items() if holds)
