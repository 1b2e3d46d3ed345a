"""Exercises of chapter 6, training and applications."""

import math
from typing import Any

from headwise.config.training import TrainConfig
from headwise.core.optimizer import learning_rate, peak_learning_rate
from headwise.lab.tutorial.exercises import Exercise, agrees

PAPER, D_MODEL, EARLY, LATE = TrainConfig(), 512, 1000, 16_000
ROUNDED = 0.005  # answers have three digits


def _close(answer: Any, expected: tuple[float, ...]) -> bool:
    """Whether small numbers are right in their first digits."""
    return agrees(answer, expected, ROUNDED, scale=expected)


def _examine_rate(answer: Any) -> str:
    peak = peak_learning_rate(PAPER, D_MODEL)
    early, late = (learning_rate(n, peak, PAPER) for n in (EARLY, LATE))
    if _close(answer, (early, late)):
        return ""
    if _close(answer, (D_MODEL**-0.5 * EARLY**-0.5, late)):
        return "Update 1000 belongs to the warm-up, where the second argument of the minimum is the smaller one."
    if _close(answer, (early, D_MODEL**-0.5 * LATE * PAPER.warmup_steps**-1.5)):
        return "Update 16,000 comes after the warm-up, where the first argument of the minimum is the smaller one."
    if _close(answer, (EARLY * PAPER.warmup_steps**-1.5, LATE**-0.5)):
        return "The factor d_model to the power of -0.5 is missing."
    return "Two numbers: 512^-0.5 times the smaller one of n^-0.5 and n * 4000^-1.5."


EPSILON, VOCAB = 0.1, 5


def _examine_smoothing(answer: Any) -> str:
    other = EPSILON / VOCAB
    if agrees(answer, (1 - EPSILON + other, other)):
        return ""
    if agrees(answer, (1 - EPSILON, EPSILON / (VOCAB - 1))):
        return "Here the others share epsilon. In the paper's reference all tokens share it, the right one, too."
    if agrees(answer, (1 - EPSILON, other)):
        return "Does that sum to one? The right token gets its share of epsilon, too."
    return "Two numbers: 1 - epsilon + epsilon / V for the right token, epsilon / V for every other one."


OUTPUT_WORDS, REFERENCE_WORDS = 8, 10


def _examine_brevity(answer: Any) -> str:
    penalty = math.exp(1 - REFERENCE_WORDS / OUTPUT_WORDS)
    if agrees(answer, 100 * penalty, 1e-3):
        return ""
    if agrees(answer, penalty, 1e-3):
        return "On a scale from 0 to 100, please."
    if agrees(answer, 100 * OUTPUT_WORDS / REFERENCE_WORDS, 1e-3):
        return "The penalty is not the ratio of the lengths. Use the exponential."
    if agrees(answer, 100 * math.exp(1 - OUTPUT_WORDS / REFERENCE_WORDS), 1e-3):
        return "The reference's length r = 10 is divided by the output's length c = 8."
    return "All precisions are 1, so BLEU is 100 times the brevity penalty."


EXERCISES = {
    "6.1": Exercise(
        "With d_model = 512 and 4000 updates of warm-up, what is the learning rate of update 1000 and of 16,000?",
        _examine_rate,
        "answer = (512**-0.5 * 1000 * 4000**-1.5, 512**-0.5 * 16_000**-0.5)",
        "0.000175 and 0.000349. Update 1000 is a quarter of the way up, so its rate is a quarter of the peak's "
        "0.000699. Update 16,000 is four times the warm-up, and the root of 4 is 2: half of the peak's.",
    ),
    "6.2": Exercise(
        "The vocabulary has 5 tokens, and epsilon is 0.1. What does the smoothed target give to the right token and to "
        "each of the others?",
        _examine_smoothing,
        "answer = (1 - 0.1 + 0.1 / 5, 0.1 / 5)",
        "The target is 0.9 times the right token plus 0.1 times the uniform distribution over all five tokens: 0.92 "
        "and 0.02. Together 0.92 + 4 * 0.02 = 1.",
    ),
    "6.3": Exercise(
        "An output of 8 words occurs word for word in a reference of 10 words. What is its BLEU, from 0 to 100?",
        _examine_brevity,
        "import math\n\nanswer = 100 * math.exp(1 - 10 / 8)",
        "All precisions are 1, and the brevity penalty is exp(-0.25) = 0.7788, so BLEU is 77.9.",
    ),
}
