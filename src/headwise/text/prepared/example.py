"""The text that the explorer and the exported page begin with: one that the model was validated on.

Model folders are shared, so they contain no data. They contain the key of the prepared validation data, which finds
them in the cache of the machine that trained the model.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from headwise.text.prepared.cache import cache_folder
from headwise.text.prepared.prepared import PreparedCorpus, is_complete, open_prepared

SUITABLE = range(8, 25)  # tokens, end token included
KEY = re.compile("[0-9a-f]{32}")  # of a prepared corpus, which is the name of its folder (`short_hash`)
MOST_READ = 1000  # sentences to choose from


def example_source(about: Mapping[str, Any]) -> str:
    """A source that fits on a screen; "" if the data are not on this machine.

    `about` is `Model.about`.
    """
    corpus = about.get("corpus")
    key = corpus.get("valid_key") if isinstance(corpus, Mapping) else None
    if not (isinstance(key, str) and KEY.fullmatch(key)):
        return ""
    folder = cache_folder(None) / key
    return _suitable(open_prepared(folder)) if is_complete(folder) else ""


def _suitable(prepared: PreparedCorpus) -> str:
    """The first of a suitable length, or the one nearest to it."""
    lengths = list(islice(prepared.src_lengths.tolist(), MOST_READ))
    row = min(
        range(len(lengths)), key=lambda row: max(SUITABLE.start - lengths[row], lengths[row] - SUITABLE.stop + 1, 0)
    )
    return " ".join(prepared.text(row)[0].split())
