"""What the explorer needs to know of a model before the first input: its views, its heads, and an example."""

from typing import Any

from headwise.errors import UserError
from headwise.inspect.example import example_source
from headwise.inspect.heads import all_heads
from headwise.inspect.page.contents import about
from headwise.inspect.page.walks import figure_contents
from headwise.inspect.recording import attentions
from headwise.inspect.walk import figure_of


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
