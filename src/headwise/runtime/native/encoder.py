"""Encoders packed for the compiled library: BERT and its relatives."""

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, byref
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from headwise.contract import SearchCancelled
from headwise.runtime.native import library as c
from headwise.runtime.native.arrays import Floats, Ints, all_below, at
from headwise.runtime.native.linear import Linear, PackedMemory
from headwise.runtime.native.network import ACTIVATIONS, PackedNetwork, Shape

HEAD_ACTIVATIONS = (*ACTIVATIONS, "tanh")


class CompiledEncoder(PackedNetwork):
    """A packed encoder without its head; arguments as for `PackedNetwork`.

    Args:
        groups: for each layer the one whose parameters it has; () = its own.
        relative: returns the scores of relative positions (heads, 2 n - 1) for n positions, for the distance of key
            and query from 1 - n on; None = there are none.
        head: packs the head, when it is first used.
    """

    def __init__(
        self,
        parameters: Mapping[str, Floats],
        shape: Shape,
        positions: Callable[[int], Sequence[Floats]],
        numbers: str,
        memory: PackedMemory | None = None,
        groups: Sequence[int] = (),
        relative: Callable[[int], Floats] | None = None,
        head: "Callable[[], CompiledHead] | None" = None,
    ) -> None:
        super().__init__(parameters, shape, positions, numbers, memory)
        table, heads = parameters["embeddings.tokens.weight"], shape.encoder_heads
        self.vocabulary, self.d_model = len(table), len(parameters["encoder.layers.0.ffn_sublayer.norm.weight"])
        types = parameters.get("embeddings.types.weight")
        self.n_types = 0 if types is None else len(types)
        layers: list[c.Layer] = []
        for i, first in enumerate(groups or range(len(heads))):
            layers.append(layers[first] if first < i else self._layer(f"encoder.layers.{i}", heads[i], None))
        assert relative is None or len(set(heads)) == 1, "all layers have the same heads"
        self._relative, self._heads, self._pack_head = relative, heads[0], head
        self.structure = c.Transformer(
            d_model=self.d_model,
            norm_first=shape.norm_first,
            n_encoder_layers=len(layers),
            source=self._embeddings("embeddings", table, shape.embedding_scales[0]),
            encoder=self._array(layers),
            encoder_norm=self._norm("encoder.norm", True),
        )
        self._packed()

    @cached_property
    def head(self) -> "CompiledHead":
        """The head, a function of single states."""
        assert self._pack_head, "this encoder has no head"
        return self._pack_head()

    def states(
        self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None, stop: Ints | None = None
    ) -> Floats:
        """The last hidden states of all texts (tokens, d_model), one text after the other.

        Args:
            texts: ids with their special tokens; no text is empty.
            types: the type of each token; None = 0.
            stop: an int32 array of one number, which another thread may set to non-zero.

        Raises:
            UserError: an id outside the vocabulary, or more tokens in a text than the model has positions.
            SearchCancelled: `stop` is set.
        """
        lengths, tokens = np.array([len(text) for text in texts], np.int32), _joined(texts)
        assert len(lengths) and lengths.all(), "no empty text"
        assert stop is None or (stop.dtype == np.int32 and stop.size == 1)
        kinds = None if types is None else _joined(types)
        assert kinds is None or (kinds.shape == tokens.shape and all_below(kinds, self.n_types)), "types of tokens"
        self._check_ids(tokens, self.vocabulary)
        self.extend_positions(int(lengths.max()))
        hidden = np.empty((len(tokens), self.d_model), np.float32)
        arrays = (at(tokens), at(kinds), at(lengths))
        if c.needed().headwise_encode(byref(self.structure), *arrays, len(lengths), at(stop), at(hidden)):
            if stop is not None and stop[0]:
                raise SearchCancelled
            raise MemoryError("not enough memory to encode texts")
        return hidden

    def _sides(self) -> Sequence[c.Embeddings]:
        return (self.structure.source,)

    def _extend_others(self, length: int) -> None:
        if self._relative:
            biases = np.ascontiguousarray(self._relative(length), np.float32)
            assert biases.shape == (self._heads, 2 * length - 1)
            table = c.Relative(at(biases), length)
            self._kept += [biases, table]
            self.structure.relative = addressof(table)


@dataclass(frozen=True)
class CompiledHead:
    """W norm(act(W_1 h + b_1)) + b: the head of every encoder, for single states."""

    dense: Linear | None  # W_1
    activation: str  # one of HEAD_ACTIVATIONS
    norm: tuple[Floats, Floats | None] | None  # weight and bias of LayerNorm
    eps: float
    output: Linear

    def __call__(self, states: Floats) -> Floats:
        """(rows, d_model) to (rows, outputs)."""
        if self.dense:
            states = activate(self.activation, self.dense(states))
        if self.norm:
            states = layer_norm(states, *self.norm, self.eps)
        return self.output(states)


def activate(name: str, x: Floats) -> Floats:
    """The activation, one of HEAD_ACTIVATIONS, in place."""
    if name == "tanh":
        return np.tanh(x, out=x)
    x = np.ascontiguousarray(x)
    c.needed().headwise_activate(ACTIVATIONS.index(name), at(x), x.size)
    return x


def layer_norm(x: Floats, weight: Floats, bias: Floats | None, eps: float) -> Floats:
    """LayerNorm of each row (arXiv:1607.06450)."""
    x = x - x.mean(1, keepdims=True)
    x *= weight / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(eps))
    return x if bias is None else x + bias


def _joined(rows: Sequence[Sequence[int]]) -> Ints:
    return np.fromiter(chain.from_iterable(rows), np.int32)
