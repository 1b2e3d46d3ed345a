"""The cache of a model prepared for inference: beams change places without a key or value being moved.

A sentence's hypotheses share its keys and values. Every hypothesis of every step has a *slot*; which slots a living
hypothesis descends from is its *ancestry*, and attention is masked by it. When beams change places, ancestry moves:
a few integers instead of every layer's keys and values. Source-side keys and values exist once per sentence.

Same contract as `cache.DecoderCache`: `reorder` and `select`, in place. Not here: attention itself (`inference`).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Slots a fresh buffer holds; more than any beam is wide, or it is doubled at once. Odd, or the same slot of all heads
# and sentences would compete for the same few places of the processor's cache.
_ROOM = 31


class BeamCache:
    """State of an incremental decoding of `sentences`, each with `beams` hypotheses in neighbouring rows."""

    def __init__(
        self,
        memory: Float[Tensor, "sentences src_len d_model"],
        src_mask: Bool[Tensor, "sentences src_len"],
        cross_k: Float[Tensor, "layers sentences heads src_len d_k"],
        cross_v: Float[Tensor, "layers sentences heads src_len d_v"],
    ) -> None:
        """Keys and values of the sources belong to the cache from here on: it moves sentences within them."""
        self.memory = memory
        self.src_mask = src_mask
        self.src_bias = padding_bias(src_mask, memory.dtype)
        self.cross_k, self.cross_v = cross_k, cross_v
        self.self_k = _slots_like(cross_k, _ROOM)
        self.self_v = _slots_like(cross_v, _ROOM)
        self.slots = 0  # in use
        self.length = 0  # target positions decoded so far
        # The slots of each hypothesis, one per position so far.
        self.ancestry: Int[Tensor, "sentences beams length"]
        self.ancestry = torch.zeros(len(memory), 1, 0, dtype=torch.long, device=memory.device)

    @property
    def beams(self) -> int:
        """Hypotheses per sentence."""
        return self.ancestry.size(1)

    def advance(self) -> Float[Tensor, "#sentences 1 #beams slots"]:
        """Make room for one more position of every hypothesis; what its attention adds to scores, 0 or -inf.

        The new keys and values belong into the last `beams` slots.
        """
        sentences, beams, length = self.ancestry.shape
        while self.slots + beams > self.self_k.size(3):
            self._make_room()
        first, self.slots, self.length = self.slots, self.slots + beams, length + 1
        new = torch.arange(first, self.slots, device=self.ancestry.device).expand(sentences, -1).unsqueeze(-1)
        self.ancestry = torch.cat([self.ancestry, new], -1)
        if self.slots == self.length:  # one hypothesis all along: every slot is an ancestor
            return self.src_bias.new_zeros(1, 1, 1, self.slots)
        barred = self.src_bias.new_full((sentences, beams, self.slots), -torch.inf)
        return barred.scatter_(2, self.ancestry, 0.0).unsqueeze(1)

    def advance_by(self, new: int) -> Float[Tensor, "1 1 new slots"]:
        """`advance` by several positions of sentences with one hypothesis each; every position attends to those
        before it and to itself.
        """
        assert self.beams == 1 and self.slots == self.length, "the slots of one hypothesis are its positions"
        while self.slots + new > self.self_k.size(3):
            self.self_k, self.self_v = _doubled(self.self_k), _doubled(self.self_v)
        self.slots, self.length = self.slots + new, self.length + new
        places = torch.arange(self.slots, device=self.ancestry.device)
        self.ancestry = places.expand(len(self.ancestry), 1, -1)
        later = places > places[-new:].unsqueeze(1)
        return self.src_bias.new_zeros(1, 1, new, self.slots).masked_fill_(later, -torch.inf)

    def truncate(self, length: int) -> None:
        """Take steps back: forget all positions from `length` on, of sentences with one hypothesis each."""
        assert self.beams == 1 and self.slots == self.length, "the slots of one hypothesis are its positions"
        self.slots = self.length = min(self.length, length)
        self.ancestry = self.ancestry[:, :, : self.length]

    def _make_room(self) -> None:
        """Forget the slots nobody descends from; where that frees less than half of the buffer, double it.

        Beams soon share most of their past, so in the long run there are hardly more slots than positions.
        """
        sentences, _, length = self.ancestry.shape
        alive = torch.zeros(sentences, self.slots, dtype=torch.bool, device=self.ancestry.device)
        alive.scatter_(1, self.ancestry.flatten(1), True)
        kept = int(alive.sum(1).max())
        if 2 * kept > self.slots:
            self.self_k, self.self_v = _doubled(self.self_k), _doubled(self.self_v)
            return
        new_slot = alive.cumsum(1) - 1
        self.ancestry = new_slot.gather(1, self.ancestry.flatten(1)).view(sentences, -1, length)
        source = alive.long().sort(dim=1, descending=True, stable=True).indices[:, :kept]
        for buffer in (self.self_k, self.self_v):
            _move_slots(buffer, source)
        self.slots = kept

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row index[i] was, both being hypotheses of one sentence."""
        home = torch.arange(len(index), device=index.device) // self.beams
        if torch.equal(index // self.beams, home):
            self.ancestry = self.ancestry.flatten(0, 1).index_select(0, index).view_as(self.ancestry)
        else:  # the sentence's rows were torn apart by `select`
            self.select(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats.

        Neighbours of one sentence stay together if all sentences have equally many; otherwise every row is a
        sentence of its own from here on.
        """
        sentence = index // self.beams
        first, counts = torch.unique_consecutive(sentence, return_counts=True)
        even = bool(counts.numel()) and bool((counts == counts[0]).all())
        beams = int(counts[0]) if even else 1
        sentences = first if even else sentence
        self.ancestry = self.ancestry.flatten(0, 1).index_select(0, index).unflatten(0, (-1, beams))
        if len(sentences) != len(self.memory) or not torch.equal(sentences, torch.arange(len(sentences)).to(sentences)):
            self._select_sentences(sentences)

    def _select_sentences(self, index: Int[Tensor, " kept"]) -> None:
        self.memory, self.src_mask, self.src_bias = (
            x.index_select(0, index) for x in (self.memory, self.src_mask, self.src_bias)
        )
        buffers = self.cross_k, self.cross_v, self.self_k, self.self_v
        places = index.tolist()
        if _fills_gaps(places, self.cross_k.size(1)):
            buffers = [_kept_in_place(buffer, places) for buffer in buffers]
        else:
            buffers = [buffer.index_select(1, index) for buffer in buffers]
        self.cross_k, self.cross_v, self.self_k, self.self_v = buffers


def padding_bias(mask: Bool[Tensor, "sentences src_len"], dtype: torch.dtype) -> Float[Tensor, "sentences 1 1 src_len"]:
    """What attention to the sources adds to its scores: 0 on real tokens, -inf on padding."""
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return bias.masked_fill_(~mask, -torch.inf)[:, None, None, :]


def _slots_like(cross: Tensor, room: int) -> Tensor:
    layers, sentences, heads, _, width = cross.shape
    return cross.new_empty(layers, sentences, heads, room, width)


def _doubled(buffer: Tensor) -> Tensor:
    """A buffer of twice the room and one more slot, with the same content."""
    room = buffer.size(3)
    bigger = _slots_like(buffer, 2 * room + 1)
    bigger[:, :, :, :room] = buffer
    return bigger


def _move_slots(buffer: Tensor, source: Int[Tensor, "sentences kept"]) -> None:
    """Slot i of every sentence becomes what slot source[i] was, in place."""
    _, sentences, heads, room, width = buffer.shape
    block = torch.arange(sentences * heads, device=buffer.device).view(sentences, heads, 1) * room
    rows = (block + source[:, None, :]).flatten()
    for layer in buffer:
        kept = layer.view(-1, width).index_select(0, rows)
        layer[:, :, : source.size(1)] = kept.view(sentences, heads, -1, width)


def _fills_gaps(index: list[int], sentences: int) -> bool:
    """Whether every sentence of `index` stays in its place or comes from beyond the last one kept, each once."""
    kept = len(index)
    fills = all(source == place or source >= kept for place, source in enumerate(index))
    return fills and kept <= sentences and len(set(index)) == kept


def _kept_in_place(buffer: Tensor, index: list[int]) -> Tensor:
    """The sentences of `index`; only those that change places are copied."""
    for place, source in enumerate(index):
        if place != source:
            buffer[:, place] = buffer[:, source]
    return buffer[:, : len(index)]
