"""Attention heads of a Transformer: list them, mask some, and get the parameters without them.

A head is named by where it attends ("encoder" and "decoder" to their own stack, "cross" from decoder to source), its
layer and its number, both from 0. See `importance.py` for the importance of heads and `headwise.pytorch.models.pruning`
for writing a smaller model.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwise.core.attention import MultiHeadAttention
from headwise.core.build import parameters_of
from headwise.errors import UserError, unknown
from headwise.pytorch.inspect.recording import attentions
from headwise.view.reader import STACKS

LayerName = tuple[str, int]  # "encoder", "decoder" or "cross"; layer
HeadsByLayer = Mapping[str, Mapping[int, Sequence[int]]]  # {"cross": {2: [0, 3]}}


class Head(NamedTuple):
    """One head."""

    part: str  # "encoder", "decoder" or "cross"
    layer: int
    number: int

    @property
    def layer_name(self) -> LayerName:
        """The attention it is a head of."""
        return self.part, self.layer


def multi_head_attentions(model: nn.Module) -> dict[LayerName, MultiHeadAttention]:
    """Every attention of a Transformer; `UserError` for other architectures, which have no heads."""
    return {where: module for where, (_, module) in _named(model).items()}


def _named(model: nn.Module) -> dict[LayerName, tuple[str, MultiHeadAttention]]:
    found = {
        (part, layer): (name, module)
        for part, modules in attentions(model).items()
        for layer, (name, module) in enumerate(modules.items())
        if isinstance(module, MultiHeadAttention)
    }
    if not found:
        raise UserError("only Transformers have heads: this is a model of another architecture")
    return found


def all_heads(model: nn.Module) -> list[Head]:
    """Every head of a Transformer, encoder first."""
    there = multi_head_attentions(model)
    return [Head(*where, number) for where, attention in there.items() for number in range(attention.n_heads)]


def heads_by_layer(heads: Collection[Head]) -> HeadsByLayer:
    """Heads as the argument of `heads_of`.

    >>> heads_by_layer([Head("cross", 2, 3), Head("cross", 2, 0)])
    {'cross': {2: [0, 3]}}
    """
    found: dict[str, dict[int, list[int]]] = {}
    for part, layer, number in sorted(heads):
        found.setdefault(part, {}).setdefault(layer, []).append(number)
    return found


def heads_of(model: nn.Module, chosen: HeadsByLayer) -> set[Head]:
    """The heads in `chosen`; `UserError` with the valid range if the model has no such part or number."""
    return set(_checked(multi_head_attentions(model), chosen))


def _checked(there: Mapping[LayerName, MultiHeadAttention], chosen: HeadsByLayer) -> Iterator[Head]:
    for part, layers in chosen.items():
        if part not in STACKS:
            raise unknown("part", str(part), STACKS)
        depth = sum(where[0] == part for where in there)
        for layer, numbers in layers.items():
            if (part, layer) not in there:
                raise UserError(f"{part} has no layer {layer!r}; its layers are 0 to {depth - 1}")
            n_heads = there[part, layer].n_heads
            for number in numbers:
                if number not in range(n_heads):
                    raise UserError(f"{part} layer {layer} has no head {number!r}; its heads are 0 to {n_heads - 1}")
                yield Head(part, layer, number)


class HeadMask:
    """Masks heads of a model: their columns of W^O are zero, so that they contribute nothing, and are restored later.

    The parameters are changed in place. Prepared networks for decoding notice that and are rebuilt
    (`pytorch/search/inference.py`), so every computation with the model is without these heads.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.heads: frozenset[Head] = frozenset()  # masked now
        self._weights: dict[LayerName, Tensor] = {}  # the original W^O where heads are masked

    def set(self, heads: Collection[Head]) -> frozenset[Head]:
        """Mask these heads and no others; returns those that were masked before.

        `UserError` if layers share their parameters (ALBERT), since a head would be masked in all of them.
        """
        there = multi_head_attentions(self.model) if self.heads or heads else {}
        if heads and len({id(attention.o_proj.weight) for attention in there.values()}) < len(there):
            raise UserError("a head cannot be masked: the layers of this model share their parameters")
        before, self.heads = self.heads, frozenset(heads)
        with torch.no_grad():
            for where, weight in self._weights.items():
                there[where].o_proj.weight.copy_(weight)
            concerned = {head.layer_name for head in heads}
            self._weights = {where: there[where].o_proj.weight.detach().clone() for where in concerned}
            for head in heads:
                attention = there[head.layer_name]
                attention.o_proj.weight.unflatten(1, (attention.n_heads, -1))[:, head.number].zero_()
        return before


def heads_left(model: nn.Module, removed: Collection[Head]) -> dict[str, tuple[int, ...]]:
    """The number of heads that each layer keeps, by part."""
    there, gone = multi_head_attentions(model), [head.layer_name for head in removed]
    counts = {where: attention.n_heads - gone.count(where) for where, attention in there.items()}
    return {part: tuple(count for where, count in counts.items() if where[0] == part) for part in STACKS}


def parameters_without(model: nn.Module, removed: Collection[Head]) -> dict[str, Tensor]:
    """The parameters without these heads: rows of W^Q, W^K, W^V and columns of W^O are left out."""
    parameters, there = parameters_of(model), _named(model)
    for where in {head.layer_name for head in removed}:
        name, attention = there[where]
        kept = [n for n in range(attention.n_heads) if Head(*where, n) not in removed]
        for projection in ("q_proj", "k_proj", "v_proj"):
            for key in {f"{name}.{projection}.weight", f"{name}.{projection}.bias"} & parameters.keys():
                parameters[key] = _kept(parameters[key], attention.n_heads, kept)
        key = f"{name}.o_proj.weight"
        parameters[key] = _kept(parameters[key].T, attention.n_heads, kept).T
    return parameters


def _kept(values: Tensor, n_heads: int, kept: Sequence[int]) -> Tensor:
    """The rows of the heads `kept`."""
    return values.unflatten(0, (n_heads, -1))[list(kept)].flatten(0, 1)
