"""A text for the explorer to begin with: one that the model was validated on, where this machine still has it.

Nothing of anybody's data is kept in a model directory, which is there to be handed on. What is kept is the key of the
prepared validation data, and on the machine that trained the model it opens them in the cache.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from sightline.data.prepared import PreparedCorpus, find_prepared

FITTING = range(8, 25)  # pieces, end mark included: enough to see something, few enough to see it at once
MOST_READ = 1000  # sentences among which to look for one


def example_source(about: Mapping[str, Any]) -> str:
    """A source that fits on a screen; empty where the data are not on this machine or were deleted.

    `about` is what `config.json` says beside the settings.
    """
    corpus = about.get("corpus")
    key = corpus.get("valid_key") if isinstance(corpus, Mapping) else None
    prepared = find_prepared(key) if isinstance(key, str) else None
    return _fitting(prepared) if prepared else ""


def _fitting(prepared: PreparedCorpus) -> str:
    """The first of a fitting length, else the one nearest to it."""
    lengths = list(islice(prepared.src_lengths.tolist(), MOST_READ))
    row = min(
        range(len(lengths)), key=lambda row: max(FITTING.start - lengths[row], lengths[row] - FITTING.stop + 1, 0)
    )
    return " ".join(prepared.text(row)[0].split())
