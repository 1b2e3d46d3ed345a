"""Exercises of chapter 3, multi-head attention."""

from typing import Any

import torch

from headwise.core.attention import MultiHeadAttention
from headwise.core.masks import causal_mask
from headwise.lab.tutorial.exercises import Exercise, agrees


def _examine_sum_over_heads(answer: Any) -> str:
    """In float64, so that the order of a sum plays no part."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        attention = MultiHeadAttention(d_model=8, n_heads=4, d_k=2, d_v=3).double()
        heads = torch.randn(2, 4, 5, 3, dtype=torch.float64)
    weight, bias = attention.o_proj.weight.detach(), attention.o_proj.bias.detach()
    right = torch.stack([heads[:, h] @ weight[:, 3 * h : 3 * h + 3].T for h in range(4)], 1)
    given = answer(attention, heads)
    if agrees(given, right, tolerance=1e-9):
        return ""
    if agrees(given, right + bias, tolerance=1e-9):
        return "The bias is added once, to the sum, and not for every head."
    if agrees(given, right + bias / 4, tolerance=1e-9) or agrees(given, right.sum(1), tolerance=1e-9):
        return "Return the contribution of every head without the bias, in the shape (batch, heads, length, d_model)."
    return "Head h is multiplied by its own d_v columns of o_proj.weight, which torch stores as (outputs, inputs)."


def _examine_deviation(answer: Any) -> str:
    given = torch.as_tensor(answer, dtype=torch.float64)
    if given.shape != (2,):
        return "The answer is two numbers: before and after the division by sqrt(d_k)."
    if agrees(given, [8.0, 1.0], tolerance=1e-6):
        return ""
    if agrees(given[0], 64.0, tolerance=1e-6):
        return "64 is the variance. The standard deviation is its square root."
    return "Variances of independent terms add up, and q . k is a sum of d_k of them, each with variance 1."


def _examine_mask(answer: Any) -> str:
    lengths, size = torch.tensor([4, 2, 1]), 4
    real = torch.arange(size) < lengths[:, None]
    right = causal_mask(size, size, lengths.device) & real[:, None, None, :]
    given = answer(lengths, size)
    if not isinstance(given, torch.Tensor) or given.dtype != torch.bool:
        return "The mask is a tensor of booleans."
    if given.shape != right.shape:
        return f"Its shape is (batch, 1, queries, keys), here {tuple(right.shape)}."
    if torch.equal(given, right):
        return ""
    if torch.equal(~given, right):
        return "True means that a query may attend to a key; this mask is the other way round."
    if torch.equal(given.mT, right) or given.triu(1).any():
        return "A query (row) may attend to earlier keys (columns) and itself, not to later ones."
    if torch.equal(given, right & real[:, None, :, None]):
        return (
            "The keys are right, but padded queries attend to nothing, and their softmax is not defined. Mask keys "
            "alone: outputs at padded positions are never read."
        )
    return "A key at or after the length of its sequence is padding; no query may attend to it."


EXERCISES = {
    "3.1": Exercise(
        "Write a function of a MultiHeadAttention and the outputs of its heads (batch, heads, length, d_v) that "
        "returns what every head adds to the output, as (batch, heads, length, d_model).",
        _examine_sum_over_heads,
        """
def answer(attention, heads):
    per_head = attention.o_proj.weight.unflatten(1, (attention.n_heads, -1))  # (d_model, heads, d_v)
    return heads @ per_head.permute(1, 2, 0)  # one matrix (d_v, d_model) for each head
""",
        "Concat(head_1, ..., head_h) W^O = head_1 W_1 + ... + head_h W_h, where W_i are the d_v rows of W^O that "
        "belong to head i. Torch stores W^O transposed, so they are columns. Because the output is a sum, a head can "
        "be silenced alone: set its term to zero.",
    ),
    "3.2": Exercise(
        "The components of q and k are independent, with mean 0 and variance 1. For d_k = 64, what is the standard "
        "deviation of q . k, and of q . k / sqrt(d_k)?",
        _examine_deviation,
        "answer = 8, 1",
        "A product of two such components has variance 1, and the variances of 64 independent products add up to 64. "
        "This is the argument in footnote 4 of section 3.2.1.",
    ),
    "3.3": Exercise(
        "Write a function of the lengths of the sequences (batch) and the number of positions that returns the mask "
        "of a decoder: no later position, and no padding.",
        _examine_mask,
        """
import torch
from headwise.core.masks import causal_mask

def answer(lengths, size):
    real = torch.arange(size) < lengths[:, None]  # (batch, keys)
    return causal_mask(size, size, lengths.device) & real[:, None, None, :]
""",
        "The causal mask is the same for all sequences, padding is the same for all queries. Broadcasting combines "
        "them, with one axis of size 1 for the heads (section 3.2.3).",
    ),
}
