"""Attention weights of a translation model for one pair, of the requested layers and heads.

Search and training use kernels that return no weights. Here the network reads the pair once more, and the requested
attentions are computed a second time. See `recording` for other inputs, `readings` for summaries of weights and
`picture` for drawing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headwise.errors import UserError, unknown
from headwise.runtime.search.translator import TextTranslator
from headwise.view.notebook import AttentionView
from headwise.view.pair import read_pair
from headwise.view.reader import STACKS, HeadCounts, PairReader, WeightsByLayer

Layers = Sequence[int] | Mapping[str, Sequence[int]]


def attend(
    translator: TextTranslator,
    reader: PairReader,
    src: str,
    tgt: str | None = None,
    layers: Layers | None = None,
    heads: Sequence[int] | None = None,
    prefix: str = "",
    **overrides: Any,
) -> AttentionView:
    """The attention weights of a source and its translation.

    The weights are those of the model in float32, whatever precision it translated in.

    Args:
        translator: the model with its tokenizer and settings; `headwise.load(...).attend` passes its own.
        reader: its network.
        src: one sentence, short enough not to be translated in parts.
        tgt: its translation; None: the model's own.
        layers: which layers to record, in all three stacks, or for each of them: `{"cross": [-1]}`. Numbers count from
            0, negative ones from the last. None: all of them.
        heads: which heads of these layers, in this order; None: all of them.
        prefix: what the model's own translation must begin with.
        **overrides: settings of `SearchSettings` for this translation, such as `beam_size=1`.

    Raises:
        UserError: the source is blank or too long, or there is no such layer, head or setting.
    """
    chosen = select_layers(reader.heads, layers, heads)  # an error comes before the search
    pair = read_pair(translator, src, tgt, prefix, translator.settings(overrides))
    weights = reader.attention(pair, chosen)
    return view(pair, reader.heads, weights, heads)


def view(shown: Any, counts: HeadCounts, weights: WeightsByLayer, heads: Sequence[int] | None) -> AttentionView:
    """The record of an input, with `heads` of the recorded layers."""
    found: dict[str, Any] = {stack: [weights[stack].get(i) for i in range(len(n))] for stack, n in counts.items()}
    if heads is not None:
        found = {
            stack: [None if one is None else one[list(heads)] for one in layers] for stack, layers in found.items()
        }
    return AttentionView(**shown.described, read=shown.read, **found)


def select_layers(counts: HeadCounts, layers: Layers | None, heads: Sequence[int] | None) -> dict[str, list[int]]:
    """The requested layers of each stack, counted from 0; `UserError` if there is no such layer or head."""
    chosen = {
        stack: _pick(list(range(len(counts[stack]))), numbers, f"{stack} attention: layer")
        for stack, numbers in _layers_of_stacks(counts, layers).items()
    }
    for stack, numbers in chosen.items():
        for number in numbers:
            _pick(range(counts[stack][number]), heads or (), f"{stack} attention, layer {number}: head")
    return {stack: chosen.get(stack, []) for stack in counts}


def _layers_of_stacks(counts: HeadCounts, layers: Layers | None) -> dict[str, Sequence[int]]:
    """The requested layers of each stack; a number for all stacks is ignored where a stack has fewer layers."""
    if layers is None:
        return {stack: range(len(heads)) for stack, heads in counts.items()}
    if isinstance(layers, Mapping):
        for stack in layers.keys() - counts.keys():
            raise unknown("kind of attention", stack, STACKS)
        return dict(layers)
    deepest = max(counts.values(), key=len)
    _pick(list(deepest), layers, "layer")
    return {stack: [n for n in layers if -len(heads) <= n < len(heads)] for stack, heads in counts.items()}


def _pick(items: Sequence[Any], numbers: Sequence[int], what: str) -> list[Any]:
    """The items with these numbers; negative ones count from the last."""
    for number in numbers:
        if not -len(items) <= number < len(items):
            known = f"they go from 0 to {len(items) - 1}" if items else "this model has none"
            raise UserError(f"{what} {number} does not exist: {known}")
    return [items[number] for number in numbers]
