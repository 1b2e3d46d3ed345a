"""Attention weights of a network for one input, for every architecture with attention.

Search and training use fused kernels, which return no weights. Here the network reads the input once more, and the
requested attentions are computed a second time (`recording`). Not here: summaries of weights (`readings`), drawing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.decode.stepwise import evaluating
from headwise.errors import UserError, unknown
from headwise.inspect.notebook import AttentionView
from headwise.inspect.pair import InspectedInput, PairTranslator, read_pair
from headwise.inspect.recording import STACKS, RecordableAttention, attentions, recording
from headwise.network.attention import MultiHeadAttention

Layers = Sequence[int] | Mapping[str, Sequence[int]]


def attend(
    translator: PairTranslator,
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
    network: Any = translator.model
    select_attentions(attentions(network), layers, heads)  # an error comes before the search
    return record_attention(
        network, read_pair(translator, src, tgt, prefix, translator.settings(overrides)), layers, heads
    )


def record_attention(
    network: Any, shown: InspectedInput, layers: Layers | None = None, heads: Sequence[int] | None = None
) -> AttentionView:
    """The attention weights for any input; other arguments as of `attend`."""
    stacks = attentions(network)
    chosen = select_attentions(stacks, layers, heads)
    stack_of = {name: stack for stack, modules in stacks.items() for name in modules}

    def kept(name: str, weights: Tensor) -> Tensor:
        return shown.as_shown(stack_of[name], weights[0].float()).unsqueeze(0)

    with evaluating(network), torch.inference_mode(), recording(chosen, kept) as weights:
        shown.read_by(network)
    found: dict[str, Any] = {
        stack: [_numbers(weights[name], heads) if name in weights else None for name in modules]
        for stack, modules in stacks.items()
    }
    return AttentionView(**shown.described, read=shown.read, **found)


def select_attentions(
    stacks: Mapping[str, Mapping[str, RecordableAttention]], layers: Layers | None, heads: Sequence[int] | None
) -> dict[str, RecordableAttention]:
    """The attentions of the requested layers; `UserError` if there is no such layer or head."""
    chosen = {
        name: module
        for stack, numbers in _layers_of_stacks(stacks, layers).items()
        for name, module in _pick(list(stacks[stack].items()), numbers, f"{stack} attention: layer")
    }
    for name, module in chosen.items():
        _pick(range(_head_count(module)), heads or (), f"{name}: head")
    return chosen


def _layers_of_stacks(
    stacks: Mapping[str, Mapping[str, RecordableAttention]], layers: Layers | None
) -> dict[str, Sequence[int]]:
    """The requested layers of each stack; a number for all stacks is ignored where a stack has fewer layers."""
    if layers is None:
        return {stack: range(len(modules)) for stack, modules in stacks.items()}
    if isinstance(layers, Mapping):
        for stack in layers.keys() - STACKS.keys():
            raise unknown("kind of attention", stack, STACKS)
        return dict(layers)
    deepest = max(stacks.values(), key=len)
    _pick(list(deepest), layers, "layer")
    return {stack: [n for n in layers if -len(modules) <= n < len(modules)] for stack, modules in stacks.items()}


def _pick(items: Sequence[Any], numbers: Sequence[int], what: str) -> list[Any]:
    """The items with these numbers; negative ones count from the last."""
    for number in numbers:
        if not -len(items) <= number < len(items):
            known = f"they go from 0 to {len(items) - 1}" if items else "this model has none"
            raise UserError(f"{what} {number} does not exist: {known}")
    return [items[number] for number in numbers]


def _head_count(module: RecordableAttention) -> int:
    return module.n_heads if isinstance(module, MultiHeadAttention) else 1


def _numbers(
    weights: Float[Tensor, "1 heads queries keys"], heads: Sequence[int] | None
) -> Float[np.ndarray, "chosen queries keys"]:
    one = weights[0].float().cpu().numpy()
    return one if heads is None else one[list(heads)]
