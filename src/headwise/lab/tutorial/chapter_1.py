"""Exercises of chapter 1, from recurrent networks to attention."""

from typing import Any

import torch
from torch import nn

from headwise.lab.tutorial.exercises import Exercise, agrees

DISTANCES, WIDTH = (32, 5), 8


def _examine_gradient(answer: Any) -> str:
    """Both cells in float64, so that rounding plays no part however small the gradient is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        cells = [kind(WIDTH, WIDTH, batch_first=True).double() for kind in (nn.RNN, nn.LSTM)]
        inputs = torch.randn(4, max(DISTANCES) + 8, WIDTH, dtype=torch.float64)
    for cell in cells:
        x = inputs.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cell(x)[0][:, -1].sum(), x)
        for distance in DISTANCES:
            given = float(answer(cell, inputs.clone(), distance))
            at = {index: float(gradient[:, index].norm()) for index in (-1 - distance, distance, -distance)}
            near = [index for index, norm in at.items() if agrees(given / norm, 1.0, tolerance=1e-6)]
            if near[:1] == [-1 - distance]:
                continue
            if near:
                return "Distance 0 is the last position, index -1; which index has distance d?"
            if distance != DISTANCES[0]:
                return f"It is right at distance {DISTANCES[0]}, and wrong at distance {distance}."
            return "Is it the derivative of the sum of the last state, and the norm over the batch?"
    return ""


STEPS_AND_PATHS = {"recurrent": (100, 100), "convolution": (1, 50), "attention": (1, 1)}


def _examine_steps(answer: Any) -> str:
    if not isinstance(answer, dict) or answer.keys() != STEPS_AND_PATHS.keys():
        return f"The answer is a dict with the keys {', '.join(STEPS_AND_PATHS)}."
    wrong = [name for name, right in STEPS_AND_PATHS.items() if tuple(answer[name]) != right]
    if "recurrent" in wrong and 99 in answer["recurrent"]:
        return (
            "Look again at recurrent. From the first state to the last are 99 steps, as on the card; from the first "
            "input on there are 100, because the first state takes one, too."
        )
    hints = {
        "recurrent": "A state needs the one before it, and so does a signal.",
        "convolution": "All positions of a layer are computed at once. A layer of width 3 reaches 2 positions back.",
        "attention": "Every position attends to every other one directly.",
    }
    return f"Look again at {wrong[0]}. {hints[wrong[0]]}" if wrong else ""


def _examine_context(answer: Any) -> str:
    scores = torch.tensor([2.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    states = torch.arange(12, dtype=torch.float64).reshape(4, 3).sin()
    given = answer(scores, states)
    if agrees(given, scores.softmax(0) @ states, tolerance=1e-9):
        return ""
    if agrees(given, scores @ states, tolerance=1e-9):
        return "These are scores. What turns them into weights that sum to one?"
    return "The context is one vector as wide as a state: the weighted sum of the states."


EXERCISES = {
    "1.1": Exercise(
        f"Write a function of a cell, its inputs and a distance d: the norm of the derivative of the sum of the last "
        f"state with respect to the input d steps earlier. It is checked at the distances {DISTANCES}.",
        _examine_gradient,
        """
import torch

def answer(cell, inputs, distance):
    inputs = inputs.clone().requires_grad_()
    last = cell(inputs)[0][:, -1]
    (gradient,) = torch.autograd.grad(last.sum(), inputs)
    return gradient[:, -1 - distance].norm()
""",
        "One backward pass gives the gradient for all positions at once. The signal passes through the recurrent "
        "matrix and the derivative of tanh, which is at most 1, once for each step of the distance.",
    ),
    "1.2": Exercise(
        "A layer reads n = 100 positions. How many steps must follow one another, and over how many steps or layers "
        "must a signal travel from the first input to the last output?",
        _examine_steps,
        f"answer = {STEPS_AND_PATHS!r}",
        "Table 1 of Vaswani et al. calls these sequential operations and maximum path length. Causal convolutions of "
        "width k look k - 1 positions back, so a stack of 2-wide steps needs 99 / 2 layers, rounded up. Attention "
        "pays for its short path with n^2 scores.",
    ),
    "1.3": Exercise(
        "Write a function of the scores (n) and states (n, width) that returns Bahdanau's context vector.",
        _examine_context,
        """
def answer(scores, states):
    return scores.softmax(0) @ states
""",
        "Equations 5 and 6 of Bahdanau et al. (2015): weights are the softmax of the scores, and the context is the "
        "weighted sum of the encoder's states. However far away state j is, it enters with its weight in one step.",
    ),
}
