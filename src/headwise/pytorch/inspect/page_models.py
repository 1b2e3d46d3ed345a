"""The views, the heads and an example of a model, which the explorer shows before the first input.

The example is a text that the model was validated on, if this machine still has it. Model folders are shared, so they
contain no data. They contain the key of the prepared validation data, which finds them in the cache of the machine that
trained the model.
"""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from headwise.errors import UserError
from headwise.pytorch.inspect.heads import all_heads
from headwise.pytorch.inspect.recording import attentions
from headwise.pytorch.inspect.walk import figure_of
from headwise.text.prepared.cache import cache_folder
from headwise.text.prepared.prepared import PreparedCorpus, is_complete, open_prepared
from headwise.view.page.contents import about
from headwise.view.page.walks import figure_contents

SUITABLE = range(8, 25)  # tokens, end token included
KEY = re.compile("[0-9a-f]{32}")  # of a prepared corpus, which is the name of its folder (`short_hash`)
MOST_READ = 1000  # sentences to choose from


def model_contents(model: Any) -> dict[str, Any]:
    """The kind of model, the number of heads of each layer (none for other architectures), and an example text."""
    example = example_source(getattr(model, "about", {}))
    figure = figure_contents(figure_of(model.network))
    views = {**_views(model), "walk": bool(figure)}
    return {"about": views, "heads": _head_counts(model.network), "figure": figure, "example": example}


def _views(model: Any) -> dict[str, Any]:
    if model.reads == "pairs":
        return about("pieces", writes=True, traced=True)
    stacks = attentions(model.network)
    reads = {"picture": "patches", "sound": "times"}.get(model.reads, "pieces")
    return about(reads if stacks["encoder"] else "", bool(stacks["decoder"]), traced=True)


def _head_counts(network: Any) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = {"encoder": [], "decoder": [], "cross": []}
    try:
        heads = all_heads(network)
    except UserError:  # no Transformer
        return counts
    for head in heads:
        layers = counts[head.part]
        layers += [0] * (head.layer + 1 - len(layers))
        layers[head.layer] += 1
    return counts


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
