"""The views, the heads and an example of a model, which the explorer shows before the first input."""

from typing import Any

from headwise.errors import UserError
from headwise.pytorch.inspect.heads import all_heads
from headwise.pytorch.inspect.recording import attentions
from headwise.pytorch.inspect.walk import figure_of
from headwise.text.prepared.example import example_source
from headwise.view.page.contents import about
from headwise.view.page.walks import figure_contents


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
