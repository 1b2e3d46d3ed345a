"""The library's own steps under the search with torch: its search is held against this, its steps against the model.

Nobody decodes so: the library searches by itself.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.pytorch.search.ensemble import AveragedNetworks
from headwise.runtime.native.network import CompiledNetwork, Decoding


class Steps:
    """A packed network as a `contract.EncoderDecoder`, without its own search."""

    def __init__(self, network: CompiledNetwork) -> None:
        self.network, self.training = network, False
        self._somewhere = torch.zeros(0)

    def train(self, mode: bool = True) -> "Steps":
        return self

    def parameters(self) -> Any:
        return iter([self._somewhere])

    def encode(self, src: Tensor, src_mask: Tensor) -> Decoding:
        lengths = src_mask.sum(1).tolist()
        return self.network.start([row[:length] for row, length in zip(src.tolist(), lengths, strict=True)])

    def start_cache(self, memory: Decoding, src_mask: Tensor) -> "Paths":
        return Paths(memory, src_mask)

    def decode(self, tgt_in: Tensor, memory: Any, src_mask: Any, cache: Any = None) -> Tensor:
        return cache.step(tgt_in)

    def logits(self, hidden: Tensor) -> Tensor:
        layer = self.network.output
        return torch.from_numpy(layer(hidden.reshape(-1, layer.d_in).numpy())).view(*hidden.shape[:-1], layer.d_out)


class Paths:
    """The hypotheses of a decoding, by their paths; the interface of `cache.DecoderCache`."""

    def __init__(self, decoding: Decoding, src_mask: Tensor) -> None:
        self.memory, self.src_mask, self.length = decoding, src_mask, 0
        self.sentences = torch.arange(decoding.sentences, dtype=torch.int32)  # of each row
        self.paths = torch.zeros(decoding.sentences, 16, dtype=torch.int32)

    def step(self, tokens: Tensor) -> Tensor:
        """Hidden states after new tokens, positions of one hypothesis like hypotheses that follow each other."""
        rows, new = tokens.shape
        if self.length + new > self.paths.size(1):
            self.paths = F.pad(self.paths, (0, self.length + new))
        self.memory.make_room(rows * new, self.paths.numpy(), self.length)
        end, first = self.length + new, self.memory.slots
        self.paths[:, self.length : end] = torch.arange(first, first + rows * new, dtype=torch.int32).view(rows, new)
        positions = torch.arange(self.length, end, dtype=torch.int32).repeat(rows)
        self.length = end
        sentences, paths = (x if new == 1 else x.repeat_interleave(new, 0) for x in (self.sentences, self.paths))
        newest = tokens.flatten().int()
        hidden = self.memory.step(newest.numpy(), positions.numpy(), sentences.numpy(), paths.numpy())
        return torch.from_numpy(hidden).view(rows, new, -1)

    def truncate(self, length: int) -> None:
        assert len(self.paths) == 1, "only for a single hypothesis"
        if length < self.length:
            self.memory.truncate(int(self.paths[0, length]))
            self.length = length

    def reorder(self, index: Tensor) -> None:
        self.select(index)

    def select(self, index: Tensor) -> None:
        self.paths, self.sentences = self.paths.index_select(0, index), self.sentences.index_select(0, index)


def by_steps(model: Any) -> Any:
    """For a packed network or an ensemble."""
    steps = [Steps(network) for network in model.networks()]
    return AveragedNetworks(steps) if len(steps) > 1 else steps[0]
