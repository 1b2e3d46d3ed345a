"""Four recurrent decoders, which map embedded target tokens to hidden states.

`SummaryDecoder` sees the source only through its start state. `AttentionalDecoder` and `InputFeedingDecoder` are
Luong's, `BahdanauDecoder` is Bahdanau's. If a step does not depend on the attention of the previous one, all positions
are a single call; otherwise they run step by step.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.pytorch.architectures.attention import AdditiveAttention, DotAttention

# Hidden states of all layers; for an LSTM also the memory cells, with input feeding also the last attentional vector.
State = tuple[Float[Tensor, "_ rows d_model"], ...]


@dataclass(frozen=True)
class RecurrentMemory:
    """The encoder's output for the decoder."""

    states: Float[Tensor, "batch src_len width"]  # of the last layer at each source position; 0 at padding
    keys: Float[Tensor, "batch src_len d_key"]  # the keys of attention
    start: State  # first state of the decoder

    def select(self, index: Int[Tensor, " kept"]) -> "RecurrentMemory":
        """The rows of `index`."""
        states, keys = self.states.index_select(0, index), self.keys
        keys = states if keys is self.states else keys.index_select(0, index)
        return RecurrentMemory(states, keys, select_state(self.start, index))


def select_state(state: State, index: Int[Tensor, " kept"]) -> tuple[Float[Tensor, "_ kept d_model"], ...]:
    """The rows of `index`."""
    return tuple(part.index_select(1, index) for part in state)


def advance_states(
    rnn: nn.RNNBase, x: Float[Tensor, "rows length width"], state: State
) -> tuple[Float[Tensor, "rows length d_model"], State]:
    """Outputs of the last layer for all of `x`, and the state after it, starting from `state`."""
    if isinstance(rnn, nn.LSTM):
        return rnn(x, state)
    outputs, last = rnn(x, state[0])
    return outputs, (last,)


class SummaryDecoder(nn.Module):
    """h_t = f(h_{t-1}, y_{t-1}): the source enters only as start state (Sutskever 2014, arXiv:1409.3215).

    Deviation: the decoder starts with a start token, not with the end token of the source.
    """

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn

    def keys(self, states: Float[Tensor, "batch src_len width"]) -> Float[Tensor, "batch src_len width"]:
        """Not used."""
        return states

    def start(self, cells: State) -> State:
        """The first state, from the states of the cells."""
        return cells

    def forward(
        self,
        x: Float[Tensor, "rows tgt_len d_model"],
        memory: RecurrentMemory,
        src_mask: Bool[Tensor, "rows src_len"],
        state: State,
    ) -> tuple[Float[Tensor, "rows tgt_len d_model"], State]:
        """Hidden states after each of `x`, and the state after the last."""
        return advance_states(self.rnn, x, state)


class AttendingDecoder(SummaryDecoder):
    """Base class of decoders with attention."""

    def __init__(self, rnn: nn.RNNBase, cross_attn: DotAttention) -> None:
        super().__init__(rnn)
        self.cross_attn = cross_attn

    def keys(self, states: Float[Tensor, "batch src_len width"]) -> Float[Tensor, "batch src_len d_key"]:
        """The keys of attention."""
        return self.cross_attn.keys(states)


class AttentionalDecoder(AttendingDecoder):
    """Luong's global attention (Luong 2015, arXiv:1508.04025, section 3.1), without input feeding.

    h_t = f(h_{t-1}, y_{t-1}); c_t = attention of h_t; attentional vector tanh(W_c [c_t; h_t]) (equation 5), from
    which the output is predicted. There is no feedback, so all positions are computed at once.
    """

    def __init__(self, rnn: nn.RNNBase, cross_attn: DotAttention, width: int) -> None:
        super().__init__(rnn, cross_attn)
        self.combine_proj = nn.Linear(width + rnn.hidden_size, rnn.hidden_size, bias=False)

    def forward(
        self,
        x: Float[Tensor, "rows tgt_len d_model"],
        memory: RecurrentMemory,
        src_mask: Bool[Tensor, "rows src_len"],
        state: State,
    ) -> tuple[Float[Tensor, "rows tgt_len d_model"], State]:
        """Attentional vectors after each of `x`, and the state after the last."""
        h, state = advance_states(self.rnn, x, state)
        return self.attend(h, memory, src_mask), state

    def attend(
        self, h: Float[Tensor, "rows length d_model"], memory: RecurrentMemory, src_mask: Bool[Tensor, "rows src_len"]
    ) -> Float[Tensor, "rows length d_model"]:
        """tanh(W_c [c_t; h_t])."""
        context = self.cross_attn(h, memory.keys, memory.states, src_mask)
        return self.combine_proj(torch.cat([context, h], -1)).tanh()


class InputFeedingDecoder(AttentionalDecoder):
    """Luong's attention with input feeding (section 3.3): the last attentional vector is part of the next input.

    It is 0 before the first step, and the last part of the state.
    """

    def start(self, cells: State) -> State:
        """The cells' state and a zero attentional vector."""
        return (*cells, torch.zeros_like(cells[0][:1]))

    def forward(
        self,
        x: Float[Tensor, "rows tgt_len d_model"],
        memory: RecurrentMemory,
        src_mask: Bool[Tensor, "rows src_len"],
        state: State,
    ) -> tuple[Float[Tensor, "rows tgt_len d_model"], State]:
        """See `AttentionalDecoder.forward`; step by step."""
        cells, fed = state[:-1], state[-1].transpose(0, 1)
        vectors = []
        for x_t in x.split(1, dim=1):
            h, cells = advance_states(self.rnn, torch.cat([x_t, fed], -1), cells)
            fed = self.attend(h, memory, src_mask)
            vectors.append(fed)
        return torch.cat(vectors, 1), (*cells, fed.transpose(0, 1))


class BahdanauDecoder(AttendingDecoder):
    """Bahdanau's decoder (Bahdanau 2015, arXiv:1409.0473, appendix A.2.2).

    c_i = attention of s_{i-1}; s_i = f(s_{i-1}, y_{i-1}, c_i); output from a maxout layer over s_i, y_{i-1} and c_i.

    Deviations: the readout uses s_i, as in equation 4; the appendix writes s_{i-1}. torch's GRU applies the reset gate
    after the product with U, the paper's before it. Extensions: other cells; with several layers, the last one gives
    the query and the first one gets the context.
    """

    def __init__(self, rnn: nn.RNNBase, cross_attn: AdditiveAttention, width: int) -> None:
        super().__init__(rnn, cross_attn)
        d_model = rnn.hidden_size
        self.readout_proj = nn.Linear(d_model + d_model + width, 2 * d_model)  # U_o, V_o and C_o concatenated

    def forward(
        self,
        x: Float[Tensor, "rows tgt_len d_model"],
        memory: RecurrentMemory,
        src_mask: Bool[Tensor, "rows src_len"],
        state: State,
    ) -> tuple[Float[Tensor, "rows tgt_len d_model"], State]:
        """Readouts after each of `x`, and the state after the last. Only the recurrence runs step by step."""
        states, contexts = [], []
        for x_i in x.split(1, dim=1):
            query = state[0][-1].unsqueeze(1)  # s_{i-1}
            context = self.cross_attn(query, memory.keys, memory.states, src_mask)
            s, state = advance_states(self.rnn, torch.cat([x_i, context], -1), state)
            states.append(s)
            contexts.append(context)
        readout = self.readout_proj(torch.cat([torch.cat(states, 1), x, torch.cat(contexts, 1)], -1))
        return readout.unflatten(-1, (-1, 2)).amax(-1), state  # maxout: the larger of each pair
