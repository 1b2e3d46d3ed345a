"""The KV cache: keys and values of decoded positions, so that a step computes only the new position.

`DecoderCache` is for an encoder-decoder, `TextCache` for a decoder alone. Search uses `reorder` when hypotheses of one
sentence move between rows, and `select` when rows are kept, dropped or repeated. Both work in place.

Usually attention reads only the positions that are there, so shapes grow with every step. A CUDA graph replays a step
with the shapes and addresses that it was captured with: for it, a `StepPosition` stands for the number of positions,
attention reads the whole buffer, and masks hide its unused part.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class StepPosition:
    """The position of the only new token of a step, as a tensor: replays of the step read its current value."""

    index: Int[Tensor, " 1"]  # int64
    bound: int  # greater than any position: attention reads this many positions of the buffers
    padding: Int[Tensor, " rows"] | None = None  # positions before each row that do not count

    def ids(self) -> Int[Tensor, "#rows 1"]:
        """The position as position ids."""
        return self.index.unsqueeze(0) if self.padding is None else self.index - self.padding.unsqueeze(1)

    def keys(self) -> Int[Tensor, " bound"]:
        """All positions of the buffers."""
        return torch.arange(self.bound, device=self.index.device)

    def visible(self) -> Bool[Tensor, "#rows 1 1 bound"]:
        """True on the position itself and those before it, without padding."""
        visible = (self.keys() <= self.index).unsqueeze(0)
        if self.padding is not None:
            visible = visible & (self.keys() >= self.padding.unsqueeze(1))
        return visible[:, None, None]


class LayerCache:
    """Keys and values of one attention module, in a buffer that doubles when full.

    Cross-attention is `complete` after the first call.
    """

    def __init__(self, grows: bool) -> None:
        self.grows = grows
        self.length = 0
        self.position: StepPosition | None = None  # replaces `length` in a step with fixed shapes
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    @property
    def start(self) -> int | StepPosition:
        """The position of the next token."""
        return self.length if self.position is None else self.position

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """Keys and values with unused positions; other tensors after `select`, or when they have grown."""
        return () if self._k is None or self._v is None else (self._k, self._v)

    @property
    def complete(self) -> bool:
        """Whether all keys and values are there (cross-attention)."""
        return not self.grows and self._k is not None

    def read(self) -> tuple[Float[Tensor, "rows heads keys d_k"], Float[Tensor, "rows heads keys d_v"]]:
        """All keys and values so far."""
        assert self._k is not None and self._v is not None
        return self._k[:, :, : self.length], self._v[:, :, : self.length]

    def append(
        self, k: Float[Tensor, "rows heads new d_k"], v: Float[Tensor, "rows heads new d_v"]
    ) -> tuple[Float[Tensor, "rows heads keys d_k"], Float[Tensor, "rows heads keys d_v"]]:
        """Add the new positions and return all of them."""
        if self.position is not None:
            return self._written(k, v, self.position)
        if not self.grows:
            self._k, self._v, self.length = k.contiguous(), v.contiguous(), k.size(2)
            return self.read()
        end = self.length + k.size(2)
        self._k = _with_capacity(self._k, k, self.length, end)
        self._v = _with_capacity(self._v, v, self.length, end)
        self._k[:, :, self.length : end] = k
        self._v[:, :, self.length : end] = v
        self.length = end
        return self.read()

    def _written(self, k: Tensor, v: Tensor, at: StepPosition) -> tuple[Tensor, Tensor]:
        """The buffers with a new position, the unused positions included."""
        assert self._k is not None and self._v is not None
        self._k.index_copy_(2, at.index, k)
        self._v.index_copy_(2, at.index, v)
        return self._k[:, :, : at.bound], self._v[:, :, : at.bound]

    def truncate(self, length: int) -> None:
        """Remove all positions from `length` on."""
        self.length = min(self.length, length)

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes row index[i]; the buffers stay where they are, and unused positions are not copied."""
        for buffer in self.buffers:
            used = buffer[:, :, : self.length]
            used.copy_(used.index_select(0, index))

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; it may repeat rows."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k.index_select(0, index), self._v.index_select(0, index)


def _with_capacity(buffer: Tensor | None, new: Tensor, used: int, wanted: int) -> Tensor:
    if buffer is not None and buffer.size(2) >= wanted:
        return buffer
    capacity = max(64 if new.is_cuda else 16, 2 * used, wanted)
    # Zeros, because masked positions are multiplied by zero, and whatever was in the memory may not be finite.
    bigger = new.new_zeros(new.size(0), new.size(1), capacity, new.size(3))
    if buffer is not None:
        bigger[:, :, :used] = buffer[:, :, :used]
    return bigger


class StepCache:
    """What `DecoderCache` and `TextCache` have in common: the self-attention of all layers."""

    self_attn: list[LayerCache]  # one per layer
    length: int  # positions decoded so far
    position: StepPosition | None  # in a step with fixed shapes

    @property
    def start_position(self) -> int | StepPosition:
        """The position of the next token."""
        return self.length if self.position is None else self.position

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """All tensors that a step reads or writes; others after `select`, or when buffers have grown."""
        return tuple(buffer for layer in self.self_attn for buffer in layer.buffers)

    @property
    def capacity(self) -> int:
        """Positions for which the buffers have room."""
        return min((layer.buffers[0].size(2) for layer in self.self_attn if layer.buffers), default=0)

    @contextmanager
    def fixed(self, index: Int[Tensor, " 1"], bound: int) -> Iterator[None]:
        """Inside, a step has fixed shapes and the position `index` < `bound`, and does not change `length`.

        `bound` is at most `capacity`.
        """
        self._place(StepPosition(index, bound, getattr(self, "padding", None)))
        try:
            yield
        finally:
            self._place(None)

    def _place(self, position: StepPosition | None) -> None:
        self.position = position
        for layer in self.self_attn:
            layer.position = position

    def advance(self) -> None:
        """Count the position that a step with fixed shapes has written."""
        self.length += 1
        for layer in self.self_attn:
            layer.length += 1

    def truncate(self, length: int) -> None:
        """Remove all positions from `length` on."""
        self.length = min(self.length, length)
        for layer in self.self_attn:
            layer.truncate(length)


@dataclass
class DecoderCache(StepCache):
    """State of incremental decoding of `rows` hypotheses."""

    memory: Float[Tensor, "rows src_len d_model"]
    src_mask: Bool[Tensor, "rows src_len"]
    self_attn: list[LayerCache]  # one per decoder layer
    cross_attn: list[LayerCache]  # one per decoder layer
    length: int = 0  # target positions decoded so far
    position: StepPosition | None = None  # in a step with fixed shapes

    @classmethod
    def start(
        cls, memory: Float[Tensor, "rows src_len d_model"], src_mask: Bool[Tensor, "rows src_len"], n_layers: int
    ) -> "DecoderCache":
        """The empty cache of a decoder with `n_layers` layers."""
        self_attn = [LayerCache(grows=True) for _ in range(n_layers)]
        cross_attn = [LayerCache(grows=False) for _ in range(n_layers)]
        return cls(memory, src_mask, self_attn, cross_attn)

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes row index[i] of the same sentence; the source side does not change."""
        for layer in self.self_attn:
            layer.reorder(index)

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """See `StepCache.buffers`."""
        source = (buffer for layer in self.cross_attn for buffer in layer.buffers)
        return *super().buffers, self.memory, self.src_mask, *source

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; they may belong to different sentences."""
        self.memory = torch.index_select(self.memory, 0, index)
        self.src_mask = torch.index_select(self.src_mask, 0, index)
        for layer in (*self.self_attn, *self.cross_attn):
            layer.select(index)


@dataclass
class TextCache(StepCache):
    """State of incremental decoding by a decoder alone: `rows` texts with left padding."""

    padding: Int[Tensor, " rows"]  # padding positions of each row
    self_attn: list[LayerCache]  # one per layer
    length: int = 0  # positions decoded so far, padding included
    position: StepPosition | None = None  # in a step with fixed shapes

    @classmethod
    def start(cls, padding: Int[Tensor, " rows"], n_layers: int) -> "TextCache":
        """The empty cache of a decoder with `n_layers` layers."""
        return cls(padding, [LayerCache(grows=True) for _ in range(n_layers)])

    def position_ids(self, new: int) -> Int[Tensor, "rows new"]:
        """Position ids of the next `new` tokens, without padding; padding has position 0."""
        index = torch.arange(self.length, self.length + new, device=self.padding.device)
        return (index - self.padding.unsqueeze(1)).clamp(min=0)

    def real(self, new: int) -> Bool[Tensor, "rows positions"] | None:
        """True on positions that are text, including `new` more; None = all."""
        if not self.padding.any():
            return None
        return torch.arange(self.length + new, device=self.padding.device) >= self.padding.unsqueeze(1)

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes row index[i]."""
        self.padding.copy_(self.padding.index_select(0, index))
        for layer in self.self_attn:
            layer.reorder(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; it may repeat rows."""
        self.padding = self.padding.index_select(0, index)
        for layer in self.self_attn:
            layer.select(index)

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """See `StepCache.buffers`."""
        return *super().buffers, self.padding
