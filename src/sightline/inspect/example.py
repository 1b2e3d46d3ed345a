"""A text for the explorer to begin with: one that the model was validated on, where this machine still has it.

Nothing of anybody's data is kept in a model directory, which is there to be handed on. What is kept is the key of the
prepared validation data, and on the machine that trained the model it opens them in the cache.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from sightline.data.cache import cache_folder
from sightline.data.prepared import PreparedCorpus, intact, open_prepared

FITTING = range(8, 25)  # pieces, end mark included: enough to see something, few enough to see it at once
KEY = re.compile("[0-9a-f]{32}")  # of a prepared corpus: `digest` makes it, and it is the name of its folder
MOST_READ = 1000  # sentences among which to look for one


def example_source(about: Mapping[str, Any]) -> str:
    """A source that fits on a screen; empty where the data are not on this machine or were deleted.

    `about` is what `config.json` says beside the settings.
    """
    corpus = about.get("corpus")
    key = corpus.get("valid_key") if isinstance(corpus, Mapping) else None
    if not (isinstance(key, str) and KEY.fullmatch(key)):
        return ""
    folder = cache_folder(None) / key
    return _fitting(open_prepared(folder)) if intact(folder) else ""


def _fitting(prepared: PreparedCorpus) -> str:
    """The first of a fitting length, else the one nearest to it."""
    lengths = list(islice(prepared.src_lengths.tolist(), MOST_READ))
    row = min(
        range(len(lengths)), key=lambda row: max(FITTING.start - lengths[row], lengths[row] - FITTING.stop + 1, 0)
    )
    return " ".join(prepared.text(row)[0].split())
