"""Whisper's temperature fallback: thresholds, temperatures, silence, prompts."""

from collections.abc import Sequence

import numpy as np
import pytest

from headwise.contract import Hypothesis
from headwise.models.speech.fallback import (
    TEMPERATURES,
    Attempt,
    WindowTranscriber,
    attempt,
    complete_tokens,
    most_probable,
    prompt_with_history,
)

WINDOW = np.zeros((1, 4), np.float32)


def found(
    log_prob: float = -0.2, compression: float = 1.5, no_speech: float = 0.0, temperature: float = 0.0
) -> Attempt:
    return Attempt([7], log_prob, compression, no_speech, temperature)


@pytest.mark.parametrize(
    ("one", "wrong", "silence"),
    [
        (found(), False, False),
        (found(compression=2.41), True, False),
        (found(log_prob=-1.01), True, False),
        (found(log_prob=-1.0, compression=2.4), False, False),  # at the thresholds
        (found(log_prob=-1.01, no_speech=0.61), False, True),
        (found(log_prob=-1.01, compression=9.0, no_speech=0.61), False, True),
        (found(no_speech=0.99), False, False),  # the text is probable
        (found(compression=2.41, no_speech=0.99), True, False),
        (found(log_prob=-1.01, no_speech=0.6), True, False),
    ],
)
def test_thresholds(one: Attempt, wrong: bool, silence: bool) -> None:
    assert (one.is_wrong, one.is_silence) == (wrong, silence)


def test_temperatures_rise_until_an_attempt_is_accepted() -> None:
    heard: list[float] = []

    def hear_at(temperature: float, well: float) -> Attempt:
        heard.append(temperature)
        return found(-0.5 if temperature >= well else -3.0, temperature=temperature)

    assert attempt(lambda t: hear_at(t, 0.4)).temperature == 0.4 and heard == [0.0, 0.2, 0.4]
    heard.clear()
    assert attempt(lambda t: hear_at(t, 9.0)).temperature == 1.0 and heard == list(TEMPERATURES)
    heard.clear()
    assert attempt(lambda t: hear_at(t, 0.0)).temperature == 0.0 and heard == [0.0]


def listener(script: Sequence[Attempt], fallback: bool, condition: bool) -> tuple[WindowTranscriber, list[list[int]]]:
    """A transcriber with scripted attempts, and the list of its prompts."""
    told, said = list(script), list[list[int]]()

    def listen(window: np.ndarray, before: Sequence[int], temperature: float) -> Attempt:
        said.append(list(before))
        return told.pop(0)

    return WindowTranscriber(lambda window: window, listen, 100, fallback, condition), said


def test_complete_text_is_the_prompt_of_the_next_window() -> None:
    cut = Attempt([100, 7, 110, 110, 9], -0.1, 1.0, 0.0)
    hot = Attempt([100, 8, 120], -0.1, 1.0, 0.0, temperature=0.6)
    last = Attempt([5], -0.1, 1.0, 0.0)
    hearing, said = listener([cut, last, hot, last], fallback=False, condition=True)
    assert [hearing(WINDOW) for _ in range(4)] == [cut.tokens, [5], hot.tokens, [5]]
    assert said == [[], [100, 7, 110], [100, 7, 110, 5], []]  # no prompt after a high temperature
    hearing, said = listener([cut, last], fallback=False, condition=False)
    assert hearing(WINDOW) and hearing(WINDOW) and said == [[], []]


def test_a_window_is_encoded_once() -> None:
    encoded, script = [], [found(-3.0), found(-3.0, temperature=0.2), found()]

    def encode(window: np.ndarray) -> np.ndarray:
        encoded.append(window)
        return window + 1

    def listen(memory: np.ndarray, before: Sequence[int], temperature: float) -> Attempt:
        assert np.array_equal(memory, WINDOW + 1)
        return script.pop(0)

    assert WindowTranscriber(encode, listen, 100, fallback=True, condition=False)(WINDOW) == [7]
    assert len(encoded) == 1 and not script


def test_silence_is_skipped() -> None:
    silent, well = found(log_prob=-2.0, no_speech=0.9), found()
    hearing, said = listener([well, silent, well], fallback=True, condition=True)
    assert [hearing(WINDOW) for _ in range(3)] == [[7], [], [7]] and said == [[], [7], [7]]
    hearing, _ = listener([silent], fallback=False, condition=False)
    assert hearing(WINDOW) == [7]


def test_prompts_take_half_of_the_positions() -> None:
    assert prompt_with_history([], [1, 2], 9, 8) == prompt_with_history([5], [1, 2], None, 8) == [1, 2]
    assert prompt_with_history(range(50), [1], 9, None) == [9, *range(50), 1]
    assert prompt_with_history([5, 6], [1], 9, 8) == [9, 5, 6, 1]
    assert complete_tokens([7, 8], 100) == [7, 8]


def test_the_best_sample_has_the_highest_mean() -> None:
    """The mean over tokens without the end token, whatever the length penalty; also for empty samples."""
    short, long = Hypothesis([1], -0.1, -2.0, [-1.0, -1.0]), Hypothesis([1, 2, 3, 4], -9.0, -5.0, [-1.0] * 5)
    assert most_probable([short, long]) is long
    assert most_probable([Hypothesis([], 0.0, -0.5, [-0.5]), long]).tokens == []
