"""Recurrent encoder-decoders: encoder, bridge to the decoder's first state, cache, and model.

Decoders, with and without attention, are in `recurrent_decoders`. Cells are torch's `nn.RNN`, `nn.LSTM` and `nn.GRU`.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headwise.core.dropout import Dropout
from headwise.pytorch.architectures.recurrent_decoders import (
    RecurrentMemory,
    State,
    SummaryDecoder,
    select_state,
)


class RecurrentEmbeddings(nn.Module):
    """dropout(E[token] * sqrt(d_model)), without positions."""

    def __init__(self, tokens: nn.Embedding, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(tokens.embedding_dim)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        return self.dropout(self.tokens(tokens) * self.scale)


class RecurrentEncoder(nn.Module):
    """States h_1 ... h_T of a recurrent network over the source, in one direction or both.

    Rows are packed, so results do not depend on padding.
    """

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(
        self, x: Float[Tensor, "batch src_len d_model"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> tuple[Float[Tensor, "batch src_len width"], State]:
        """States of the last layer, directions concatenated and 0 at padding; final states of all layers."""
        lengths = src_mask.sum(1).cpu()
        outputs, final = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.size(1))
        return states, final if isinstance(final, tuple) else (final,)


class ReversingEncoder(RecurrentEncoder):
    """Reads the source in reverse (Sutskever 2014, arXiv:1409.3215, section 3.3).

    The end token is read first. States are in the order of the source.
    """

    def forward(
        self, x: Float[Tensor, "batch src_len d_model"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> tuple[Float[Tensor, "batch src_len width"], State]:
        """See `RecurrentEncoder.forward`."""
        order = back_to_front(src_mask).unsqueeze(-1)
        states, final = super().forward(x.take_along_dim(order, 1), src_mask)
        return states.take_along_dim(order, 1), final


def back_to_front(src_mask: Bool[Tensor, "batch src_len"]) -> Int[Tensor, "batch src_len"]:
    """Indices that reverse the real positions; padding stays in place.

    >>> back_to_front(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    index = torch.arange(src_mask.size(1), device=src_mask.device)
    lengths = src_mask.sum(1, keepdim=True)
    return torch.where(index < lengths, lengths - 1 - index, index)


class FinalStates(nn.Module):
    """The decoder starts from the encoder's final states (Sutskever 2014, section 2; Luong 2015)."""

    def forward(self, final: State) -> State:
        return final


class ProjectedFinalState(nn.Module):
    """s_0 = tanh(W_s h), h the last layer's final state (Bahdanau 2015, appendix A.2.2); each layer has its W_s.

    For a bidirectional encoder h is the backward state, which ends at the first word, as in the paper. Extensions:
    without attention `n_states` is 2 and h both states; for a unidirectional encoder h is its only state; memory cells
    of an LSTM start at 0.
    """

    def __init__(self, d_model: int, n_layers: int, n_states: int = 1) -> None:
        super().__init__()
        self.proj = nn.Linear(n_states * d_model, n_layers * d_model)
        self.n_layers = n_layers
        self.n_states = n_states

    def forward(self, final: State) -> State:
        """From (encoder layers x directions, batch, d_model) to (decoder layers, batch, d_model)."""
        h = torch.cat(list(final[0][-self.n_states :]), -1)
        start = self.proj(h).tanh().unflatten(-1, (self.n_layers, -1)).transpose(0, 1).contiguous()
        return (start, *(torch.zeros_like(start) for _ in final[1:]))


@dataclass
class RecurrentCache:
    """State of incremental decoding of `rows` hypotheses; its size does not depend on their length."""

    memory: RecurrentMemory
    src_mask: Bool[Tensor, "rows src_len"]
    state: State
    length: int = 0  # target positions decoded so far

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes row index[i] of the same sentence; the source side does not change."""
        self.state = select_state(self.state, index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order; they may belong to different sentences."""
        self.memory = self.memory.select(index)
        self.src_mask = self.src_mask.index_select(0, index)
        self.state = select_state(self.state, index)


class Recurrent(nn.Module):
    """Recurrent encoder-decoder; build one with `headwise.pytorch.architectures.build`.

    Deviations from all papers: embeddings times sqrt(d_model), because source, target and output may share a table as
    in the Transformer, and no output bias, since trainer and loss are the Transformer's.
    """

    def __init__(
        self,
        src_embeddings: nn.Embedding,
        tgt_embeddings: nn.Embedding,
        encoder: RecurrentEncoder,
        bridge: FinalStates | ProjectedFinalState,
        decoder: SummaryDecoder,
        output: nn.Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.src_embeddings = src_embeddings
        self.tgt_embeddings = tgt_embeddings
        self.encoder = encoder
        self.bridge = bridge
        self.decoder = decoder
        self.output = output
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(src_embeddings.embedding_dim)

    def encode(self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]) -> RecurrentMemory:
        """The encoder's output. `src_mask` is True on real tokens; padding is on the right."""
        states, final = self.encoder(self._embed(self.src_embeddings, src), src_mask)
        return RecurrentMemory(states, self.decoder.keys(states), self.decoder.start(self.bridge(final)))

    def decode(
        self,
        tgt_in: Int[Tensor, "batch tgt_len"],
        memory: RecurrentMemory,
        src_mask: Bool[Tensor, "batch src_len"],
        cache: RecurrentCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states that predict the token after each of `tgt_in`.

        With a cache, `tgt_in` holds the new positions only; they are added to the cache.
        """
        state = memory.start if cache is None else cache.state
        x = self._embed(self.tgt_embeddings, tgt_in)
        hidden, state = self.decoder(x, memory, src_mask, state)
        if cache is not None:
            cache.state = state
            cache.length += tgt_in.size(1)
        return self.dropout(hidden)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next token."""
        return self.output(hidden)

    def start_cache(self, memory: RecurrentMemory, src_mask: Bool[Tensor, "batch src_len"]) -> RecurrentCache:
        """The empty cache to decode these sources with."""
        return RecurrentCache(memory, src_mask, memory.start)

    def states(
        self,
        src: Int[Tensor, "batch src_len"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states with teacher forcing."""
        return self.decode(tgt_in, self.encode(src, src_mask), src_mask)

    def forward(
        self,
        src: Int[Tensor, "batch src_len"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch tgt_len vocab"]:
        """Logits of the token after each of `tgt_in`."""
        return self.logits(self.states(src, tgt_in, src_mask))

    def _embed(self, table: nn.Embedding, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        return self.dropout(table(tokens) * self.scale)
