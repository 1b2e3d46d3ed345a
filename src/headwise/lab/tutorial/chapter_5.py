"""Exercises of chapter 5, the decoder and its output."""

from typing import Any

from headwise.contract import length_penalty, power_penalty
from headwise.lab.tutorial.exercises import Exercise, agrees

TOKENS = 100
EVERY_STEP = TOKENS * (TOKENS + 1) // 2


def _examine_cache(answer: Any) -> str:
    if agrees(answer, (EVERY_STEP, TOKENS), tolerance=0.0):
        return ""
    if agrees(answer, (TOKENS, EVERY_STEP), tolerance=0.0):
        return "The right numbers in the wrong order: without a cache comes first."
    if agrees(answer, (TOKENS**2, TOKENS), tolerance=0.0):
        return "The first step has one position only, the second one two. Add up 1 + 2 + ... + 100."
    if agrees(answer, (EVERY_STEP - TOKENS, TOKENS), tolerance=0.0):
        return "Step n reads n positions: the start token and n - 1 others. Do not begin with 0."
    return "Two numbers. Without a cache, step n computes n positions; with one, a step computes the newest position."


LOG_PROBS, ALPHA = (-0.4, -0.3, -0.2, -0.1), 0.6


def _examine_score(answer: Any) -> str:
    total, length = sum(LOG_PROBS), len(LOG_PROBS)
    if agrees(answer, total / length_penalty(length, ALPHA), tolerance=2e-4):
        return ""
    if agrees(answer, total / length_penalty(length - 1, ALPHA), tolerance=2e-4):
        return "The end token counts, too: |Y| is 4."
    if agrees(answer, total, tolerance=2e-4):
        return "This is the log-probability. Divide it by the length penalty."
    if agrees(answer, total / length, tolerance=2e-4):
        return "This is the mean log-probability. The paper's penalty is ((5 + |Y|) / 6) to the power of alpha."
    if agrees(answer, total / power_penalty(length, ALPHA), tolerance=2e-4):
        return "You divided by |Y| to the power of alpha. The paper's penalty begins with (5 + |Y|) / 6."
    if agrees(answer, total * length_penalty(length, ALPHA), tolerance=2e-4):
        return "You multiplied by the penalty. Divide."
    return "Add the four log-probabilities, and divide by ((5 + 4) / 6) to the power of 0.6."


PROBABILITIES, TOP_P = (0.5, 0.25, 0.15, 0.1), 0.8


def _examine_nucleus(answer: Any) -> str:
    if agrees(answer, 0.25 / 0.9, tolerance=2e-4):
        return ""
    if agrees(answer, 0.25, tolerance=2e-4):
        return "This is its probability before the last token was left out. The rest must sum to one again."
    if agrees(answer, 0.25 / 0.75, tolerance=2e-4):
        return "Two tokens have 0.75 together, which does not reach 0.8. The nucleus needs a third."
    if agrees(answer, 0.25 / TOP_P, tolerance=2e-4):
        return "Divide by the probability that the nucleus really has. It is more than 0.8."
    return "Add tokens, most probable first, until 0.8 is reached. Then divide by their sum."


EXERCISES = {
    "5.1": Exercise(
        "A model writes 100 tokens one by one. How many positions pass through each decoder layer without a KV cache, "
        "and how many with one?",
        _examine_cache,
        "answer = (sum(range(1, 101)), 100)",
        "Without a cache, step n computes all n positions again: 1 + 2 + ... + 100 = 5050. With one, each step "
        "computes the newest position. The newest one still attends to all keys, so attention alone is not linear.",
    ),
    "5.2": Exercise(
        "What is the score of a hypothesis whose three tokens and end token have the log-probabilities -0.4, -0.3, "
        "-0.2 and -0.1, with alpha = 0.6?",
        _examine_score,
        "answer = (-0.4 - 0.3 - 0.2 - 0.1) / ((5 + 4) / 6) ** 0.6",
        "The log-probability is -1.0. The library counts the end token, so |Y| = 4 and the penalty is 1.5 to the power "
        "of 0.6 = 1.2754. The score is -0.7841.",
    ),
    "5.3": Exercise(
        "Four tokens have the probabilities 0.5, 0.25, 0.15 and 0.1. With which probability is the second one sampled "
        "if top_p = 0.8?",
        _examine_nucleus,
        """
from itertools import accumulate

probabilities = [0.5, 0.25, 0.15, 0.1]
before = [0.0, *accumulate(probabilities)]
nucleus = [p for p, mass in zip(probabilities, before) if mass < 0.8]
answer = nucleus[1] / sum(nucleus)
""",
        "The first two tokens have 0.75 together, so the nucleus has three, with 0.9. Divided by that, the second "
        "token has 0.25 / 0.9 = 0.2778. The fourth token is never sampled.",
    ),
}
