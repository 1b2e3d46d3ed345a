"""Precision, recall and F1 of entities in tagged words, as computed by seqeval.

An entity is correct if its type, first and last word are. Tags are read as CoNLL's script reads them: B- begins an
entity, I- continues one of its type or begins one (IOB1 and IOB2), E- ends one and S- is one (IOBES). A tag without
such a prefix is a type itself, and equal neighbours are one entity.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.evaluate.classes import ClassCount, class_table
from headwise.text.files.sources import OUTSIDE_TAG, count_of

PREFIXES = ("B", "I", "E", "S")
Entity = tuple[str, int, int]  # type, first word, end


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a tagged sentence, in order.

    >>> entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [('PER', 0, 2), ('LOC', 3, 4), ('LOC', 4, 5)]
    """
    found: list[Entity] = []
    before = ("", "")
    for i, tag in enumerate(tags):
        prefix, kind = _parted(tag)
        if prefix in ("I", "E") and before[0] in ("B", "I") and before[1] == kind:
            found[-1] = (kind, found[-1][1], i + 1)
        elif prefix:
            found.append((kind, i, i + 1))
        before = prefix, kind
    return found


def _parted(tag: str) -> tuple[str, str]:
    """Prefix and type; both empty for a word outside of every entity."""
    if tag == OUTSIDE_TAG:
        return "", ""
    prefix, _, kind = tag.partition("-")
    return (prefix, kind) if prefix in PREFIXES and (kind or tag == prefix) else ("I", tag)


@dataclass(frozen=True)
class TagReport:
    """Scores of a test set."""

    kinds: dict[str, ClassCount]  # by entity type
    accuracy: float  # of words
    words: int
    sentences: int

    @property
    def all(self) -> ClassCount:
        """Entities of all types."""
        counts = [(one.n_true, one.n_predicted, one.n_correct) for one in self.kinds.values()]
        return ClassCount(*map(sum, zip((0, 0, 0), *counts, strict=True)))

    def as_json(self) -> dict[str, object]:
        """`{"f1": ..., "precision": ..., "recall": ..., "accuracy": ..., "words": n, "kinds": {kind: {...}}}`."""
        scores = {"f1": self.all.f1, "precision": self.all.precision, "recall": self.all.recall}
        sizes = {"accuracy": self.accuracy, "words": self.words, "sentences": self.sentences}
        return {**scores, **sizes, "kinds": {kind: one.as_json() for kind, one in self.kinds.items()}}

    def render(self) -> str:
        """A report for people."""
        head = f"entity F1 {self.all.f1:.2%}, precision {self.all.precision:.2%}, recall {self.all.recall:.2%}; "
        head += f"accuracy of {count_of(self.words, 'word')} {self.accuracy:.2%}"
        return "\n".join([head, "", *class_table(self.kinds, "entity", "true")])


def tag_report(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TagReport:
    """Scores of the tags of sentences; F1 over all types is the micro average, seqeval's default.

    >>> report = tag_report([["B-PER", "I-PER", "O"]], [["B-PER", "O", "B-LOC"]])
    >>> report.all, round(report.accuracy, 3)
    (ClassCount(n_true=1, n_predicted=2, n_correct=0), 0.333)
    """
    assert len(true) == len(predicted) > 0
    pairs = [(entities(t), entities(p)) for t, p in zip(true, predicted, strict=True)]
    n_true, n_predicted = (Counter(one[0] for pair in pairs for one in pair[side]) for side in (0, 1))
    n_correct = Counter(one[0] for t, p in pairs for one in {*t} & {*p})
    kinds = sorted({*n_true, *n_predicted})
    counts = {kind: ClassCount(n_true[kind], n_predicted[kind], n_correct[kind]) for kind in kinds}
    right = sum(t == p for one, other in zip(true, predicted, strict=True) for t, p in zip(one, other, strict=True))
    words = sum(map(len, true))
    return TagReport(counts, right / words, words, len(true))
