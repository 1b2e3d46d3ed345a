"""Alignment error rate: by hand, and the figures published for GIZA++ and fast_align."""

from pathlib import Path

import pytest

from headwise.errors import UserError
from headwise.evaluate.alignment import score_alignment
from headwise.text.files.links import GoldLinks, Link, read_gold, read_links


def gold(sure: set[Link], possible: set[Link]) -> GoldLinks:
    return GoldLinks(frozenset(sure), frozenset(sure | possible))


def test_by_hand() -> None:
    truth = [gold({(0, 0), (1, 1)}, {(1, 2), (2, 2)}), gold({(0, 0)}, set())]
    found = [{(0, 0), (1, 2), (3, 3)}, {(0, 1)}]  # one sure, one possible, one wrong; one wrong
    score = score_alignment(found, truth)
    assert (score.links, score.sure, score.pairs) == (4, 3, 2)
    assert score.precision == pytest.approx(100 * 2 / 4)
    assert score.recall == pytest.approx(100 * 1 / 3)
    assert score.aer == pytest.approx(100 * (1 - (1 + 2) / (4 + 3)))


def test_extremes() -> None:
    truth = [gold({(0, 0)}, {(1, 1)})]
    assert score_alignment([{(0, 0)}], truth).aer == 0
    assert score_alignment([{(0, 0), (1, 1)}], truth).aer == 0  # possible links cost nothing
    assert score_alignment([{(0, 1)}], truth).aer == 100
    assert score_alignment([set()], truth).aer == 100
    assert score_alignment([set()], [gold(set(), set())]).aer == 0


def test_a_link_found_twice_counts_once() -> None:
    assert score_alignment([[(0, 0), (0, 0)]], [gold({(0, 0)}, set())]).links == 1


def test_other_numbers_of_pairs() -> None:
    with pytest.raises(UserError, match="links of 1 pair, but gold of 2"):
        score_alignment([set()], [gold(set(), set())] * 2)


@pytest.mark.parametrize(
    ("aligner", "aer", "precision", "recall", "links"),
    [
        ("giza.grow-diagonal", 5.9, 97.5, 89.7, 5072),
        ("giza.fwd", 8.0, 91.4, 92.9, 6069),
        ("fastalign.grow-diagonal", 10.5, 90.8, 87.8, 5374),
        ("fastalign.fwd", 16.4, 80.0, 90.1, 7312),
    ],
)
def test_known_answers(
    shared_data: Path, aligner: str, aer: float, precision: float, recall: float, links: int
) -> None:
    folder = shared_data / "align"
    found = read_links(str(folder / "hyp" / f"enfr.{aligner}.align"))
    score = score_alignment(found, read_gold(str(folder / "enfr.gold")))
    assert (round(score.aer, 1), round(score.precision, 1), round(score.recall, 1)) == (aer, precision, recall)
    assert (score.links, score.sure, score.pairs) == (links, 4038, 447)
