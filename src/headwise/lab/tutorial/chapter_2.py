"""Exercises of chapter 2, embeddings and positions."""

import math
from typing import Any

import torch

from headwise.core.positions import sinusoids
from headwise.lab.tutorial.exercises import Exercise, agrees


def _examine_shift(answer: Any) -> str:
    """In float32, as the table is: an angle of at most 90 radians and its sine are off by less than 1e-5."""
    for d_model, shift in ((8, 1), (16, 7), (32, 40)):
        codes = sinusoids(50 + shift, d_model)
        matrix = torch.as_tensor(answer(d_model, shift), dtype=torch.float32)
        if matrix.shape != (d_model, d_model):
            return f"For d_model = {d_model} the matrix has {d_model} rows and {d_model} columns."
        if agrees(codes[:50] @ matrix.T, codes[shift:]):
            continue
        if agrees(codes[shift:] @ matrix.T, codes[:50]) or agrees(codes[:50] @ matrix, codes[shift:]):
            return "This matrix goes back by k positions, not forward. Check the sign of the sines."
        return (
            "Each pair (sine, cosine) is rotated on its own. Use sin(a + b) and cos(a + b) with b = k / 10000^(2i/d)."
        )
    return ""


PERIODS = tuple(2 * math.pi * 10000 ** (first / 512) for first in (0, 256, 510))


def _examine_periods(answer: Any) -> str:
    given = torch.as_tensor(answer, dtype=torch.float64)
    if given.shape != (3,):
        return "The answer is three numbers of positions."
    if agrees(given / torch.tensor(PERIODS, dtype=torch.float64), torch.ones(3), tolerance=0.01):
        return ""
    if agrees(given * 2 * math.pi / torch.tensor(PERIODS, dtype=torch.float64), torch.ones(3), tolerance=0.01):
        return "Over these distances the angle grows by one radian. A sine repeats after 2 pi radians."
    return "Dimensions 2i and 2i + 1 have the angle pos / 10000^(2i/d_model). When has it grown by 2 pi?"


def _examine_sharing(answer: Any) -> str:
    if agrees(answer, 2 * 37_000 * 512, tolerance=1e-9):
        return ""
    if agrees(answer, 37_000 * 512, tolerance=1e-9):
        return "This is one table. Three matrices become one: how many are saved?"
    return "Every table has a row of d_model numbers for each token of the vocabulary."


EXERCISES = {
    "2.1": Exercise(
        "Write a function of d_model and k that returns the matrix M with PE(p + k) = M PE(p) for every position p.",
        _examine_shift,
        """
import torch

def answer(d_model, k):
    matrix = torch.zeros(d_model, d_model)
    for first in range(0, d_model, 2):
        b = torch.tensor(k / 10000 ** (first / d_model))
        rotation = torch.stack([b.cos(), b.sin(), -b.sin(), b.cos()]).reshape(2, 2)
        matrix[first : first + 2, first : first + 2] = rotation
    return matrix
""",
        "sin(a + b) = cos(b) sin(a) + sin(b) cos(a), and cos(a + b) = -sin(b) sin(a) + cos(b) cos(a): every pair of "
        "dimensions is rotated by an angle that depends on k alone. This is the reason that section 3.5 gives for the "
        "sinusoids. Rotary positions (arXiv:2104.09864) rotate queries and keys in the same way.",
    ),
    "2.2": Exercise(
        "With d_model = 512, after how many positions do dimensions 0, 256 and 510 repeat?",
        _examine_periods,
        """
from math import pi

answer = [2 * pi * 10000 ** (first / 512) for first in (0, 256, 510)]
""",
        "The wavelengths form a geometric progression from 2 pi to almost 10000 * 2 pi (section 3.5). Fast dimensions "
        "tell neighbours apart, slow ones tell the beginning of a text from its end.",
    ),
    "2.3": Exercise(
        "The base model has d_model = 512 and 37,000 tokens. How many parameters does it save by sharing one matrix "
        "between both embeddings and the output (section 3.4)?",
        _examine_sharing,
        "answer = 2 * 37_000 * 512",
        "Three tables of 37,000 times 512 become one. The saved 38 million parameters are more than half of the 65 "
        "million that the whole base model has (Table 3).",
    ),
}
