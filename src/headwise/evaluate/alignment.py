"""Alignment error rate: word links compared with those of annotators.

Och and Ney 2003 (https://aclanthology.org/J03-1002), section 6: annotators mark sure links S and possible ones P, S
within P. With A the links found, precision = |A & P| / |A|, recall = |A & S| / |S| and

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)

counted over all pairs together. See `text/files/links.py` for files of links and `view/alignment.py` for links found by
a model.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from headwise.errors import UserError
from headwise.text.files.links import GoldLinks, Link
from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class AlignmentScore:
    """Links compared with gold links; shares in percent. A lower error rate is better."""

    aer: float
    precision: float
    recall: float
    links: int  # predicted
    sure: int  # of gold
    pairs: int

    def as_json(self) -> dict[str, float]:
        """The fields by name."""
        return asdict(self)

    def render(self) -> str:
        """One line for people."""
        return (
            f"AER {self.aer:.1f}   precision {self.precision:.1f}   recall {self.recall:.1f}   "
            f"{count_of(self.links, 'link')}, {self.sure:,} sure in gold, {count_of(self.pairs, 'pair')}"
        )


def score_alignment(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks]) -> AlignmentScore:
    """Compare predicted links of sentence pairs with gold links.

    If there are neither, the error rate is 0, and precision and recall are 100.

    Raises:
        UserError: the numbers of pairs differ.

    >>> gold = GoldLinks(sure=frozenset({(0, 0)}), possible=frozenset({(0, 0), (1, 1)}))
    >>> print(score_alignment([{(0, 0), (1, 1), (2, 1)}], [gold]).render())
    AER 25.0   precision 66.7   recall 100.0   3 links, 1 sure in gold, 1 pair
    """
    if len(found) != len(gold):
        raise UserError(f"links of {count_of(len(found), 'pair')}, but gold of {len(gold):,}; line n belongs to line n")
    n_found = n_sure = n_in_sure = n_in_possible = 0
    for pair, truth in zip(found, gold, strict=True):
        links = frozenset(pair)
        n_found += len(links)
        n_sure += len(truth.sure)
        n_in_sure += len(links & truth.sure)
        n_in_possible += len(links & truth.possible)
    return AlignmentScore(
        aer=100 - _percent(n_in_sure + n_in_possible, n_found + n_sure),
        precision=_percent(n_in_possible, n_found),
        recall=_percent(n_in_sure, n_sure),
        links=n_found,
        sure=n_sure,
        pairs=len(gold),
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0
