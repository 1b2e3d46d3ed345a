"""The KV cache: keys and values of decoded positions, so that a step computes only the new position.

`DecoderCache` is for an encoder-decoder, `TextCache` for a decoder alone. Search uses `reorder` when hypotheses of one
sentence move between rows, and `select` when rows are kept, dropped or repeated. Both work in place.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class LayerCache:
    """Keys and values of one attention module, in a buffer that doubles when full.

    Cross-attention is `complete` after the first call.
    """

    def __init__(self, grows: bool) -> None:
        self.grows = grows
        self.length = 0
        self._k: Tensor | None = None
        self._v: Tensor | None = None

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

    def truncate(self, length: int) -> None:
        """Remove all positions from `length` on."""
        self.length = min(self.length, length)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; it may repeat rows."""
        if self._k is not None and self._v is not None:
            self._k, self._v = self._k.index_select(0, index), self._v.index_select(0, index)


def _with_capacity(buffer: Tensor | None, new: Tensor, used: int, wanted: int) -> Tensor:
    if buffer is not None and buffer.size(2) >= wanted:
        return buffer
    capacity = max(16, 2 * used, wanted)
    bigger = new.new_empty(new.size(0), new.size(1), capacity, new.size(3))
    if buffer is not None:
        bigger[:, :, :used] = buffer[:, :, :used]
    return bigger


@dataclass
class DecoderCache:
    """State of incremental decoding of `rows` hypotheses."""

    memory: Float[Tensor, "rows src_len d_model"]
    src_mask: Bool[Tensor, "rows src_len"]
    self_attn: list[LayerCache]  # one per decoder layer
    cross_attn: list[LayerCache]  # one per decoder layer
    length: int = 0  # target positions decoded so far

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
            layer.select(index)

    def truncate(self, length: int) -> None:
        """Remove all target positions from `length` on."""
        self.length = min(self.length, length)
        for layer in self.self_attn:
            layer.truncate(length)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; they may belong to different sentences."""
        self.memory = torch.index_select(self.memory, 0, index)
        self.src_mask = torch.index_select(self.src_mask, 0, index)
        for layer in (*self.self_attn, *self.cross_attn):
            layer.select(index)


@dataclass
class TextCache:
    """State of incremental decoding by a decoder alone: `rows` texts with left padding."""

    padding: Int[Tensor, " rows"]  # padding positions of each row
    self_attn: list[LayerCache]  # one per layer
    length: int = 0  # positions decoded so far, padding included

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
        self.select(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; it may repeat rows."""
        self.padding = self.padding.index_select(0, index)
        for layer in self.self_attn:
            layer.select(index)

    def truncate(self, length: int) -> None:
        """Remove all positions from `length` on."""
        self.length = min(self.length, length)
        for layer in self.self_attn:
            layer.truncate(length)
