"""The cheap baselines of `benchmarks/tasks.py`, and the rows of the pages that it compares with."""

import math
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def tasks(script: Any) -> Any:
    return script


@pytest.fixture
def baselines(tasks: Any) -> Any:
    return tasks.baselines


@pytest.mark.parametrize("context", ["", "a", "ab", "ba", "abr"])
def test_probabilities_of_all_continuations_sum_to_one(context: str, baselines: Any) -> None:
    text = "abracadabra, abracadabra and cadabra"

    def likelihood(test: str) -> float:
        return math.exp(-baselines.kneser_ney_loss(text, test, order=3) * len(test)) if test else 1.0

    continuations = sum(likelihood(context + character) for character in {*text})
    assert continuations / likelihood(context) == pytest.approx(1)


def test_ngrams_predict_what_they_have_seen(baselines: Any) -> None:
    text = "the cat sat on the mat; the rat sat on the hat. " * 3
    assert baselines.kneser_ney_loss(text, "the cat sat", 4) < 0.5 * baselines.kneser_ney_loss(text, "tac eht tas", 4)


def test_letters_are_aligned_with_sounds(baselines: Any) -> None:
    words = {
        "c a t": "K AE T", "t a x": "T AE K S", "a x": "AE K S", "s a t": "S AE T", "t a c": "T AE K",
        "c a s t": "K AE S T", "a c t": "AE K T", "t s a": "T S AE", "s a x": "S AE K S",
    }  # fmt: skip
    pairs = [(word.split(), sounds.split()) for word, sounds in words.items()]
    model = baselines.LetterWindows(pairs)
    found = [model.sounds(word) for word in (["c", "a", "x"], ["t", "a", "s"], ["q", "a"])]
    assert found == [["K", "AE", "K", "S"], ["T", "AE", "S"], ["AE"]]
    assert baselines.error_rate(found[:2], [["K", "AE", "K", "S"], ["T", "AE", "T", "S"]]) == 1 / 8


def test_a_wave_is_linear_in_its_past(baselines: Any) -> None:
    wave = np.sin(np.arange(400) / 5) + np.arange(400) / 100
    error = baselines.linear_error(wave[:300], wave[300:], window=40, horizon=3, ridge=1e-6)
    assert error < 0.01 * np.abs(wave[340:] - wave[337:-3]).mean()


def test_the_nearest_pictures_vote(baselines: Any) -> None:
    pictures = np.array([[0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9.0]])
    labels, near = np.array([0, 0, 1, 1, 1, 0]), np.array([[0, 0.2], [9, 8.8]])
    assert baselines.neighbour_accuracy(pictures, labels, near, np.array([0, 1])) == 1
    assert baselines.neighbour_accuracy(pictures, labels, near, np.array([0, 0])) == 0.5


def test_every_figure_is_on_its_page(tasks: Any) -> None:
    for corpus in tasks.CORPORA.values():
        page = (tasks.PAGES / corpus.page).read_text(encoding="utf-8")
        for row in (corpus.cheap, *corpus.runs):
            assert tasks.stated(page, row)[0] > 0


def test_a_median_outside_the_range_of_the_page_is_reported(tasks: Any) -> None:
    page = "| `vit` | 3 minutes | [97.5 ± 0.4](../../benchmarks/results/x.md)% |\n| linear | | [1.108](x.md) °C |"
    assert tasks.difference(page, "`vit`", [97.1, 97.2, 99.0]) == tasks.difference(page, "linear", [1.10833]) == ""
    assert "96.4" in tasks.difference(page, "`vit`", [96.0, 96.4, 97.5])
    assert "1.11" in tasks.difference(page, "linear", [1.11])
    with pytest.raises(SystemExit, match="no row 'k-NN'"):
        tasks.stated(page, "k-NN")
