"""Scores and contexts compared with the formulas in numpy, and by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from headwise.pytorch.architectures.attention import AdditiveAttention, DotAttention, GeneralAttention

D, WIDTH = 4, 6
MASK = torch.tensor([[True] * 5, [True, True, False, False, False]])


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def dot(attention: DotAttention, query: np.ndarray, state: np.ndarray) -> float:
    return float(query @ state)


def general(attention: GeneralAttention, query: np.ndarray, state: np.ndarray) -> float:
    return float(query @ attention.k_proj.weight.detach().numpy() @ state)


def additive(attention: AdditiveAttention, query: np.ndarray, state: np.ndarray) -> float:
    w_a, b, u_a, v_a = (
        x.detach().numpy()
        for x in (
            attention.q_proj.weight,
            attention.q_proj.bias,
            attention.k_proj.weight,
            attention.score.weight[0],
        )
    )
    return float(v_a @ np.tanh(w_a @ query + b + u_a @ state))


@pytest.mark.parametrize(
    ("make", "score", "width"),
    [
        (DotAttention, dot, D),
        (lambda: GeneralAttention(D, WIDTH), general, WIDTH),
        (lambda: AdditiveAttention(D, WIDTH), additive, WIDTH),
    ],
    ids=["dot", "general", "additive"],
)
def test_weights_and_contexts_are_the_formulas(make: Callable[[], DotAttention], score: Callable, width: int) -> None:
    attention = make().double()
    query, states = torch.randn(2, 3, D).double(), torch.randn(2, 5, width).double()
    keys = attention.keys(states)
    weights, context = attention.weights(query, keys, MASK), attention(query, keys, states, MASK)
    for row, length in enumerate(MASK.sum(1).tolist()):
        values = states[row, :length].numpy()
        for i in range(3):
            expected = softmax(np.array([score(attention, query[row, i].numpy(), value) for value in values]))
            np.testing.assert_allclose(weights[row, i, :length].detach(), expected, atol=1e-12)
            np.testing.assert_allclose(context[row, i].detach(), expected @ values, atol=1e-12)
    assert weights[~MASK.unsqueeze(1).expand_as(weights)].count_nonzero() == 0


def test_dot_attention_by_hand() -> None:
    """Scores ln 3 and 0: weights 3/4 and 1/4."""
    query = torch.tensor([[[float(np.log(3)), 0.0]]])
    states = torch.tensor([[[1.0, 0.0], [0.0, 8.0]]])
    context = DotAttention()(query, states, states, torch.tensor([[True, True]]))
    torch.testing.assert_close(context, torch.tensor([[[0.75, 2.0]]]))


def test_additive_attention_by_hand() -> None:
    """tanh is odd, so the two scores are v tanh(1) and -v tanh(1), and their weights the logistic of twice that."""
    attention = AdditiveAttention(1, 1)
    with torch.no_grad():
        for parameter, value in zip(attention.parameters(), (1.0, 0.0, 2.0, 0.5), strict=True):
            parameter.fill_(value)  # W_a, its bias, U_a, v_a
    keys = attention.keys(torch.tensor([[[0.5], [-0.5]]]))
    weights = attention.weights(torch.zeros(1, 1, 1), keys, torch.tensor([[True, True]]))
    expected = 1 / (1 + np.exp(-2 * 0.5 * np.tanh(1.0)))
    torch.testing.assert_close(weights, torch.tensor([[[expected, 1 - expected]]], dtype=torch.float32))
