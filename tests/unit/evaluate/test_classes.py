"""Accuracy and F1 against figures computed by hand, and against scikit-learn's formula written out."""

import random

import numpy as np
import pytest

from headwise.evaluate.classes import ClassCount, label_report

TRUE = ["a", "a", "a", "a", "b", "b", "c", "c", "c", "c"]
PREDICTED = ["a", "a", "b", "c", "b", "a", "c", "c", "c", "b"]


def test_hand_computed_figures() -> None:
    report = label_report(TRUE, PREDICTED)
    assert report.classes == {"a": ClassCount(4, 3, 2), "b": ClassCount(2, 3, 1), "c": ClassCount(4, 4, 3)}
    assert report.accuracy == pytest.approx(6 / 10)
    a, b, c = report.classes.values()
    assert (a.precision, a.recall, a.f1) == pytest.approx((2 / 3, 2 / 4, 4 / 7))
    assert (b.precision, b.recall, b.f1) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert (c.precision, c.recall, c.f1) == pytest.approx((3 / 4, 3 / 4, 3 / 4))
    assert report.macro_f1 == pytest.approx((4 / 7 + 2 / 5 + 3 / 4) / 3)


def test_a_label_never_true_or_never_predicted_counts_as_zero() -> None:
    report = label_report(["a", "b"], ["a", "c"])
    assert report.macro_f1 == pytest.approx(1 / 3)
    assert (report.classes["b"].precision, report.classes["c"].recall) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_scikit_learns(seed: int) -> None:
    """By way of the confusion matrix: precision p, recall r of each label of the union, mean of 2pr / (p + r)."""
    rng = random.Random(seed)
    true, predicted = ([rng.choice("abcd"[: rng.randint(2, 4)]) for _ in range(30)] for _ in "tp")
    labels = sorted({*true, *predicted})
    matrix = np.zeros((len(labels), len(labels)))
    for t, p in zip(true, predicted, strict=True):
        matrix[labels.index(t), labels.index(p)] += 1
    with np.errstate(invalid="ignore"):
        precision, recall = matrix.diagonal() / matrix.sum(0), matrix.diagonal() / matrix.sum(1)
        f1 = np.nan_to_num(2 * precision * recall / (precision + recall))
    report = label_report(true, predicted)
    assert report.macro_f1 == pytest.approx(f1.mean())
    assert report.accuracy == pytest.approx(matrix.trace() / 30)


def test_what_is_shown_and_what_is_written() -> None:
    report = label_report(TRUE, PREDICTED)
    shown = report.render().splitlines()
    assert shown[0] == "accuracy 60.00%, macro F1 0.5738"
    assert shown[-1].split() == ["c", "4", "4", "3", "0.7500", "0.7500", "0.7500"]
    record = report.as_json()
    assert record["texts"] == 10
    assert record["classes"]["a"]["n_correct"] == 2
