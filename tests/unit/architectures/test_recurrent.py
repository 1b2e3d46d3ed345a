"""Recurrent networks compared with torch's single cells and with the papers."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.pytorch.architectures.recurrent import FinalStates, ProjectedFinalState, Recurrent
from headwise.pytorch.architectures.registry import Network

SRC = torch.tensor([[7, 5, 10, 3, 8, 2], [4, 9, 2, 0, 0, 0], [6, 2, 0, 0, 0, 0]])
SRC_MASK = SRC != 0
TGT_IN = torch.tensor([[1, 8, 4, 5], [1, 3, 9, 9], [1, 6, 10, 7]])
TIGHT = {"rtol": 0, "atol": 1e-12}
CELLS = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}


def cell_of(rnn: nn.RNNBase, suffix: str) -> nn.RNNCellBase:
    """One layer and direction as torch's single cell, with a copy of its parameters; `suffix` as `l0_reverse`."""
    kind = {nn.RNN: "rnn", nn.LSTM: "lstm", nn.GRU: "gru"}[type(rnn)]
    n_inputs = getattr(rnn, f"weight_ih_{suffix}").size(1)
    cell = CELLS[kind](n_inputs, rnn.hidden_size).double()
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).data.copy_(getattr(rnn, f"{name}_{suffix}"))
    return cell


def unroll(cell: nn.RNNCellBase, inputs: list[Tensor], state: tuple[Tensor, ...]) -> tuple[list[Tensor], tuple]:
    outputs = []
    for x in inputs:
        new = cell(x, state if isinstance(cell, nn.LSTMCell) else state[0])
        state = new if isinstance(new, tuple) else (new,)
        outputs.append(state[0])
    return outputs, state


def nothing(cell: nn.RNNCellBase, d_model: int) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(d_model).double() for _ in range(2 if isinstance(cell, nn.LSTMCell) else 1))


def run_encoder(rnn: nn.RNNBase, inputs: list[Tensor]) -> tuple[list[Tensor], list[tuple[Tensor, ...]]]:
    """All layers and directions over one sentence: outputs of the last layer, final states in torch's order."""
    final = []
    for layer in range(rnn.num_layers):
        directions = []
        for suffix in [f"l{layer}", f"l{layer}_reverse"][: 2 if rnn.bidirectional else 1]:
            cell, backward = cell_of(rnn, suffix), suffix.endswith("reverse")
            outputs, last = unroll(cell, inputs[::-1] if backward else inputs, nothing(cell, rnn.hidden_size))
            directions.append(outputs[::-1] if backward else outputs)
            final.append(last)
        inputs = [torch.cat(pair) for pair in zip(*directions, strict=True)]
    return inputs, final


def embed(model: Recurrent, table: nn.Embedding, tokens: Tensor) -> list[Tensor]:
    return list(table.weight[tokens] * 6**0.5)


# --- the encoder


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_encoder_is_its_cells_unrolled(cell: str, bidirectional: bool, build_small: Callable[..., Network]) -> None:
    model = build_small("general", cell=cell, bidirectional=bidirectional, reverse_source=False)
    states, final = model.encoder(model.src_embeddings(SRC) * 6**0.5, SRC_MASK)
    for row, length in enumerate(SRC_MASK.sum(1).tolist()):
        inputs = embed(model, model.src_embeddings, SRC[row, :length])
        outputs, last = run_encoder(model.encoder.rnn, inputs)
        torch.testing.assert_close(states[row, :length], torch.stack(outputs), **TIGHT)
        assert not states[row, length:].any()
        for part, tensors in zip(final, zip(*last, strict=True), strict=True):
            torch.testing.assert_close(part[:, row], torch.stack(tensors), **TIGHT)


def test_reversed_encoder_reads_reversed_text_and_states_stay_in_place(build_small: Callable[..., Network]) -> None:
    model = build_small("luong", reverse_source=True)
    memory = model.encode(SRC, SRC_MASK)
    for row, length in enumerate(SRC_MASK.sum(1).tolist()):
        inputs = embed(model, model.src_embeddings, SRC[row, :length])
        outputs, final = run_encoder(model.encoder.rnn, inputs[::-1])
        torch.testing.assert_close(memory.states[row, :length], torch.stack(outputs[::-1]), **TIGHT)
        for part, tensors in zip(memory.start, zip(*final, strict=True), strict=False):
            torch.testing.assert_close(part[:, row], torch.stack(tensors), **TIGHT)


# --- the first decoder state


def test_the_decoder_starts_from_the_final_states(build_small: Callable[..., Network]) -> None:
    model = build_small("rnn")
    assert isinstance(model.bridge, FinalStates)
    _, final = model.encoder(model.src_embeddings(SRC) * 6**0.5, SRC_MASK)
    torch.testing.assert_close(model.encode(SRC, SRC_MASK).start, final, **TIGHT)


def test_bahdanaus_decoder_starts_from_the_first_backward_state(
    build_small: Callable[..., Network],
) -> None:
    model = build_small("bahdanau")
    memory = model.encode(SRC, SRC_MASK)
    first_backward = memory.states[:, 0, 6:].detach().numpy()
    w, b = (p.detach().numpy() for p in (model.bridge.proj.weight, model.bridge.proj.bias))
    np.testing.assert_allclose(memory.start[0][0].detach(), np.tanh(first_backward @ w.T + b), atol=1e-12)


def test_without_attention_both_directions_are_used(build_small: Callable[..., Network]) -> None:
    model = build_small("gru-summary")
    memory = model.encode(SRC, SRC_MASK)
    last = SRC_MASK.sum(1) - 1
    both = torch.cat([memory.states[torch.arange(3), last, :6], memory.states[:, 0, 6:]], -1)
    expected = model.bridge.proj(both).tanh()
    torch.testing.assert_close(torch.cat(list(memory.start[0]), -1), expected, **TIGHT)


def test_every_decoder_layer_has_its_own_projection_and_memory_cells_start_empty() -> None:
    bridge = ProjectedFinalState(2, n_layers=3).double()
    h = torch.randn(4, 5, 2).double()
    start, cells = bridge((h, h))
    expected = (h[3] @ bridge.proj.weight.T + bridge.proj.bias).tanh()
    torch.testing.assert_close(torch.cat(list(start), -1), expected, **TIGHT)
    assert start.shape == cells.shape == (3, 5, 2)
    assert not cells.any()


# --- the decoders, one sentence and one step at a time


def stack_step(rnn: nn.RNNBase, x: Tensor, states: list[tuple]) -> tuple[Tensor, list[tuple]]:
    new = []
    for layer, state in enumerate(states):
        (x,), state = unroll(cell_of(rnn, f"l{layer}"), [x], state)
        new.append(state)
    return x, new


def starts(model: Recurrent, row: int, memory) -> list[tuple[Tensor, ...]]:
    parts = [part[:, row] for part in memory.start]
    n_parts = 2 if isinstance(model.decoder.rnn, nn.LSTM) else 1
    return list(zip(*parts[:n_parts], strict=True))


@pytest.mark.parametrize("variant", ["rnn", "lstm-reversed", "gru-summary"])
def test_a_decoder_without_attention_is_its_cells(variant: str, build_small: Callable[..., Network]) -> None:
    model = build_small(variant)
    memory, hidden = model.encode(SRC, SRC_MASK), model.states(SRC, TGT_IN, SRC_MASK)
    for row in range(3):
        states = starts(model, row, memory)
        for i, x in enumerate(embed(model, model.tgt_embeddings, TGT_IN[row])):
            h, states = stack_step(model.decoder.rnn, x, states)
            torch.testing.assert_close(hidden[row, i], h, **TIGHT)


@pytest.mark.parametrize("variant", ["dot", "general", "dot-feeding", "luong"])
def test_luongs_decoder(variant: str, build_small: Callable[..., Network]) -> None:
    """Section 3.1 and 3.3: state, then attention, then tanh(W_c [c.

    H]), which is part of the next input with input feeding.
    """
    model = build_small(variant)
    decoder, memory, hidden = model.decoder, model.encode(SRC, SRC_MASK), model.states(SRC, TGT_IN, SRC_MASK)
    for row, length in enumerate(SRC_MASK.sum(1).tolist()):
        states, annotations, fed = starts(model, row, memory), memory.states[row, :length], torch.zeros(6).double()
        for i, x in enumerate(embed(model, model.tgt_embeddings, TGT_IN[row])):
            x = torch.cat([x, fed]) if "feeding" in variant or variant == "luong" else x
            h, states = stack_step(decoder.rnn, x, states)
            w_a = torch.eye(6).double() if "dot" in variant else decoder.cross_attn.k_proj.weight
            context = (annotations @ w_a.T @ h).softmax(0) @ annotations
            fed = (decoder.combine_proj.weight @ torch.cat([context, h])).tanh()
            torch.testing.assert_close(hidden[row, i], fed, **TIGHT)


def test_bahdanaus_decoder(build_small: Callable[..., Network]) -> None:
    """Appendix A.2.2 in numpy: alignment with s_{i-1}, the gated unit with the context, the maxout readout."""
    model = build_small("bahdanau")
    memory, hidden = model.encode(SRC, SRC_MASK), model.states(SRC, TGT_IN, SRC_MASK).detach().numpy()
    p = {name: value.detach().numpy() for name, value in model.decoder.named_parameters()}
    for row, length in enumerate(SRC_MASK.sum(1).tolist()):
        s, h = memory.start[0][0, row].detach().numpy(), memory.states[row, :length].detach().numpy()
        for i, x in enumerate(embed(model, model.tgt_embeddings, TGT_IN[row])):
            y = x.detach().numpy()
            inner = (
                s @ p["cross_attn.q_proj.weight"].T + p["cross_attn.q_proj.bias"] + h @ p["cross_attn.k_proj.weight"].T
            )
            e = np.tanh(inner) @ p["cross_attn.score.weight"][0]
            context = np.exp(e) / np.exp(e).sum() @ h
            s = gated_unit(p, np.concatenate([y, context]), s)
            t = p["readout_proj.weight"] @ np.concatenate([s, y, context]) + p["readout_proj.bias"]
            np.testing.assert_allclose(hidden[row, i], t.reshape(-1, 2).max(1), atol=1e-12)


def gated_unit(p: dict[str, np.ndarray], x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """torch's GRU: z keeps the old state, r gates it after its product."""
    from_x = np.split(p["rnn.weight_ih_l0"] @ x + p["rnn.bias_ih_l0"], 3)
    from_s = np.split(p["rnn.weight_hh_l0"] @ s + p["rnn.bias_hh_l0"], 3)
    r, z = (1 / (1 + np.exp(-from_x[k] - from_s[k])) for k in (0, 1))
    return z * s + (1 - z) * np.tanh(from_x[2] + r * from_s[2])


def test_maxout_by_hand(build_small: Callable[..., Network]) -> None:
    """With no weights the readout is the larger of each pair of biases."""
    model = build_small("bahdanau")
    with torch.no_grad():
        model.decoder.readout_proj.weight.zero_()
        model.decoder.readout_proj.bias.copy_(torch.tensor([1, 2, -1, -3, 0, 5, 4, 4, 7, -7, -2, -1.0]))
    hidden = model.states(SRC[:1], TGT_IN[:1], SRC_MASK[:1])
    assert hidden[0, 0].tolist() == [2, -1, 5, 4, 7, -1]
