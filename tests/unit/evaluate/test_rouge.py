"""ROUGE by hand-counted summaries, and through the same reports as BLEU."""

import pytest

from headwise.errors import UserError
from headwise.evaluate.bleu import ROUGE, corpus_scores
from headwise.evaluate.significance import paired_bootstrap

pytest.importorskip("rouge_score")
SAID = ["the cat sat on a mat", "dogs barked"]
REAL = ["the cat was on the mat", "a dog barks loudly"]


def test_by_hand() -> None:
    """Line 1 shares the, cat, on, mat (4 of 6 and 6), no pair but "the cat" (1 of 5 and 5), in order the 4; line 2,
    stemmed, dog and bark: 2 of 2 and 4, the pair (1 of 1 and 3), the 2.
    """
    scores = corpus_scores(SAID, REAL, ROUGE)
    f1 = {"ROUGE-1": (4 / 6, 2 / 3), "ROUGE-2": (1 / 5, 1 / 2), "ROUGE-L": (4 / 6, 2 / 3)}
    for name, lines in f1.items():
        assert scores[name].score == pytest.approx(100 * sum(lines) / 2), name
        assert scores[name].signature.startswith("nrefs:1|case:lc|stem:porter|f:1|rouge-score:")


def test_of_several_references_the_best_counts() -> None:
    scores = corpus_scores(["a b"], [["x y"], ["a b"], ["a c"]], ["ROUGE-1"])
    assert scores["ROUGE-1"].score == 100 and "nrefs:3" in scores["ROUGE-1"].signature


def test_two_systems_are_compared_by_it() -> None:
    compared = paired_bootstrap(SAID, REAL, REAL, metrics=["ROUGE-2"], n_samples=50)["ROUGE-2"]
    assert compared.b.score == 100 > compared.a.score


def test_other_scripts_are_refused() -> None:
    with pytest.raises(UserError, match=r"reference, line 2: has no word of a to z or digits.*use chrF\+\+"):
        corpus_scores(["a", "b"], ["a", "собака"], ["ROUGE-1"])
