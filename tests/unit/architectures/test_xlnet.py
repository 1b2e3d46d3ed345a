"""Properties of the two streams; values are compared in tests/parity/test_xlnet.py."""

import pytest
import torch
from torch import Tensor

from headwise.pytorch.architectures.xlnet import XLNet, XLNetShape, build_xlnet, partial_order_mask, relative_positions

VOCAB, LENGTH = 30, 6


def network(**settings: object) -> XLNet:
    shape = {"vocab_size": VOCAB, "d_model": 8, "n_layers": 2, "n_heads": 2, "d_ff": 12, "dropout": 0.0, **settings}
    model = build_xlnet(XLNetShape(**shape)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def influences(out: Tensor, on: Tensor) -> list[bool]:
    """Whether each position of `on`, (1, length, width), influences `out`."""
    (gradient,) = torch.autograd.grad(out.sum(), on, retain_graph=True)
    return gradient[0].abs().sum(-1).gt(0).tolist()


def embedded(model: XLNet, tokens: Tensor) -> list[Tensor]:
    """A list that collects the token embeddings, for their gradients."""
    found: list[Tensor] = []
    model.tokens.register_forward_hook(lambda module, given, out: found.append(out))
    return found


def test_query_stream_sees_what_comes_before_it_in_the_order_and_never_itself() -> None:
    model, tokens = network(), torch.randint(VOCAB, (1, LENGTH))
    order = torch.tensor([[3, 5, 0, 4, 1, 2]])
    vectors = embedded(model, tokens)
    logits = model(tokens, visible=partial_order_mask(order.argsort(1)), targets=order[:, 1:])
    for step, scores in enumerate(logits[0], start=1):
        known = order[0, :step].tolist()
        assert influences(scores, vectors[0]) == [position in known for position in range(LENGTH)]


def test_content_stream_sees_itself_too() -> None:
    model, tokens = network(), torch.randint(VOCAB, (1, LENGTH))
    order = torch.tensor([[3, 5, 0, 4, 1, 2]])
    vectors = embedded(model, tokens)
    logits = model(tokens, visible=partial_order_mask(order.argsort(1)))
    for step, position in enumerate(order[0].tolist()):
        known = order[0, : step + 1].tolist()
        assert influences(logits[0, position], vectors[0]) == [other in known for other in range(LENGTH)]


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    model, tokens = network(), torch.randint(VOCAB, (1, LENGTH))
    padded = torch.cat([torch.randint(VOCAB, (1, 3)), tokens, torch.randint(VOCAB, (1, 2))], 1)
    mask = torch.tensor([[False] * 3 + [True] * LENGTH + [False] * 2])
    torch.testing.assert_close(model(padded, mask)[:, 3:-2], model(tokens), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_memory_replaces_the_previous_text() -> None:
    """Causally, a text in two segments gives the same result as in one."""
    model, tokens = network(direction="uni"), torch.randint(VOCAB, (2, 10))
    first, second = tokens.split([6, 4], 1)
    whole = model(tokens)
    torch.testing.assert_close(model(second, mems=model.states(first).mems), whole[:, 6:], atol=1e-5, rtol=1e-5)


def test_memory_has_no_gradient_and_its_length_is_bounded() -> None:
    model, tokens = network(memory_length=4, reuse_length=3), torch.randint(VOCAB, (2, LENGTH))
    mems = model.states(tokens).mems
    assert [tuple(memory.shape) for memory in mems] == [(2, 3, 8)] * 2
    mems = model.states(tokens, mems=mems).mems
    assert [tuple(memory.shape) for memory in mems] == [(2, 4, 8)] * 2
    assert not any(memory.requires_grad for memory in mems)


@torch.no_grad()
def test_a_query_that_may_see_nothing_is_finite() -> None:
    model, tokens = network(), torch.randint(VOCAB, (1, LENGTH))
    nothing = torch.zeros(1, LENGTH, LENGTH, dtype=torch.bool)
    assert model(tokens, visible=nothing, targets=torch.tensor([[0, 4]])).isfinite().all()


def test_positions_are_clamped_sines_then_cosines() -> None:
    found = relative_positions(3, 4, 2, torch.zeros(4))
    assert found.shape == (6, 4)
    torch.testing.assert_close(found[:, 0], torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 2.0]).sin())
    torch.testing.assert_close(found[:, 3], (torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 2.0]) / 100).cos())


def test_dropout_and_gradients() -> None:
    model, tokens = network(dropout=0.3).train(), torch.randint(VOCAB, (2, LENGTH))
    assert not model(tokens).equal(model(tokens))
    targets = torch.tensor([[0, 3], [5, 1]])
    model(tokens, segments=tokens % 2, targets=targets).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("tied", [True, False])
def test_output_is_tied_or_separate(tied: bool) -> None:
    model = build_xlnet(XLNetShape(vocab_size=VOCAB, d_model=8, n_layers=1, n_heads=2, d_ff=8, tied_output=tied))
    assert (model.head.weight is model.tokens.weight) is tied


def test_initial_parameters() -> None:
    model = build_xlnet(XLNetShape(vocab_size=VOCAB, d_model=64, n_layers=1, n_heads=2, d_ff=80))
    values = dict(model.named_parameters())
    assert values["layers.0.attn.q_proj.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert values["layers.0.attn.content_bias"].std().item() == pytest.approx(0.02, rel=0.3)
    assert (values["layers.0.attn_norm.weight"] == 1).all() and (values["layers.0.ffn_norm.bias"] == 0).all()
    assert (values["layers.0.ffn.up_proj.bias"] == 0).all() and (values["head.bias"] == 0).all()
