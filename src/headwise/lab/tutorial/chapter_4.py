"""Exercises of chapter 4, layer norm, feed-forward networks and residual connections."""

from typing import Any

import torch
from torch import nn

from headwise.lab.tutorial.exercises import Exercise, agrees

ROUNDED: dict[str, Any] = {"tolerance": 6e-4, "scale": 1.0}  # answers are rounded to three decimals
X, GAIN, BIAS = (1.0, 3.0, 5.0, 7.0), (1.0, 1.0, 2.0, 2.0), (0.0, 1.0, 0.0, 1.0)


def _examine_norm(answer: Any) -> str:
    x, gain, bias = (torch.tensor(values, dtype=torch.float64) for values in (X, GAIN, BIAS))
    centred = x - x.mean()
    if agrees(answer, centred / x.std(unbiased=False) * gain + bias, **ROUNDED):
        return ""
    if agrees(answer, centred / x.std() * gain + bias, **ROUNDED):
        return "The variance of layer norm is the mean of the squares: divide by d = 4, not by 3."
    if agrees(answer, centred / x.var(unbiased=False) * gain + bias, **ROUNDED):
        return "You divided by the variance. Divide by its square root."
    if agrees(answer, centred / x.std(unbiased=False), **ROUNDED):
        return "These are the normalised values. Multiply by the gain and add the bias."
    return "The mean is 4 and the variance 5. Subtract, divide by the root of the variance, then apply gain and bias."


D_MODEL, D_FF = 768, 3072


def _examine_parameters(answer: Any) -> str:
    weights = 2 * D_MODEL * D_FF
    if agrees(answer, weights + D_MODEL + D_FF, tolerance=0.0):
        return ""
    if agrees(answer, weights, tolerance=0.0):
        return "These are the two matrices. Add the two biases: one is as wide as d_ff, the other as wide as d_model."
    if agrees(answer, D_MODEL * D_FF + D_FF, tolerance=0.0):
        return "This is the first of two linear layers. The second one leads back to d_model."
    return "Two matrices, d_model x d_ff and d_ff x d_model, and a bias for the output of each."


def _examine_pre_norm(answer: Any) -> str:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x, f, norm = torch.randn(2, 3, 8).double(), nn.Linear(8, 8).double(), nn.LayerNorm(8).double()
        nn.init.normal_(norm.weight)
    with torch.no_grad():
        given = answer(x, f, norm)
        if agrees(given, x + f(norm(x)), tolerance=1e-9):
            return ""
        if agrees(given, norm(x + f(x)), tolerance=1e-9):
            return "This is post-norm, as in the paper. In pre-norm the sum is the last operation."
        if agrees(given, x + norm(f(x)), tolerance=1e-9):
            return "You normalise the output of f. Pre-norm normalises its input."
        if agrees(given, f(norm(x)), tolerance=1e-9):
            return "The residual connection is missing."
        if agrees(given, norm(x) + f(norm(x)), tolerance=1e-9):
            return "You add the normalised x. The stream itself stays as it is."
    return "Normalise x, apply f, and add x."


EXERCISES = {
    "4.1": Exercise(
        "What is the layer norm of x = (1, 3, 5, 7) with gain (1, 1, 2, 2) and bias (0, 1, 0, 1)?",
        _examine_norm,
        """
import torch

x = torch.tensor([1.0, 3.0, 5.0, 7.0])
normalised = (x - x.mean()) / x.std(unbiased=False)
answer = normalised * torch.tensor([1.0, 1.0, 2.0, 2.0]) + torch.tensor([0.0, 1.0, 0.0, 1.0])
""",
        "The mean is 4 and the variance (9 + 1 + 1 + 9) / 4 = 5. The normalised values are -3, -1, 1 and 3, divided by "
        "the root of 5 = 2.236: -1.342, -0.447, 0.447, 1.342. Gain and bias make -1.342, 0.553, 0.894, 3.683 of them. "
        "torch's `x.std()` divides by n - 1 unless you ask for `unbiased=False`; layer norm divides by n.",
    ),
    "4.2": Exercise(
        "How many parameters has a feed-forward network with d_model = 768 and d_ff = 3072, with biases?",
        _examine_parameters,
        "answer = 768 * 3072 + 3072 + 3072 * 768 + 768",
        "W_1 is 768 x 3072 with a bias of 3072, W_2 is 3072 x 768 with a bias of 768: 4,722,432. BERT-base has twelve "
        "of them, half of its 110 million parameters.",
    ),
    "4.3": Exercise(
        "Write a function of an input x, a function f and a norm: the output of a pre-norm sub-layer.",
        _examine_pre_norm,
        """
def answer(x, f, norm):
    return x + f(norm(x))
""",
        "It is the branch `norm_first` of `Sublayer.forward`. Only the input of f is normalised, so x itself reaches "
        "the output unchanged. A final norm follows the last layer, because the sum has grown by then.",
    ),
}
