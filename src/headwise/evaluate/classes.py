"""Classification metrics: accuracy, and precision, recall and F1 of each class; one label for a text, or several."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class ClassCount:
    """Counts of one label."""

    n_true: int  # texts with this label
    n_predicted: int  # texts predicted to have it
    n_correct: int  # both

    def as_json(self) -> dict[str, Any]:
        """The counts and the metrics."""
        return {**asdict(self), "precision": self.precision, "recall": self.recall, "f1": self.f1}

    @property
    def precision(self) -> float:
        """Correct / predicted; 0 if nothing is predicted."""
        return self.n_correct / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        """Correct / true; 0 if there are none."""
        return self.n_correct / self.n_true if self.n_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both, 2 correct / (true + predicted); 0 if nothing is correct."""
        return 2 * self.n_correct / (self.n_true + self.n_predicted) if self.n_correct else 0.0


@dataclass(frozen=True)
class LabelReport:
    """Scores of a test set."""

    classes: dict[str, ClassCount]
    accuracy: float
    macro_f1: float

    def as_json(self) -> dict[str, Any]:
        """`{"accuracy": ..., "macro_f1": ..., "texts": n, "classes": {label: {...}}}`."""
        classes = {label: one.as_json() for label, one in self.classes.items()}
        texts = sum(one.n_true for one in self.classes.values())
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1, "texts": texts, "classes": classes}

    def render(self) -> str:
        """A report for people."""
        head = f"accuracy {self.accuracy:.2%}, macro F1 {self.macro_f1:.4f}"
        return "\n".join([head, "", *class_table(self.classes, "label", "texts")])


@dataclass(frozen=True)
class LabelSetReport:
    """Scores of a test set whose texts have any number of labels."""

    classes: dict[str, ClassCount]
    texts: int
    exact: float  # share of the texts whose labels are all right
    micro_f1: float  # of all labels of all texts together
    macro_f1: float

    def as_json(self) -> dict[str, Any]:
        """`{"micro_f1": ..., "macro_f1": ..., "exact": ..., "texts": n, "classes": {label: {...}}}`."""
        classes = {label: one.as_json() for label, one in self.classes.items()}
        scores = {"micro_f1": self.micro_f1, "macro_f1": self.macro_f1, "exact": self.exact}
        return {**scores, "texts": self.texts, "classes": classes}

    def render(self) -> str:
        """A report for people."""
        head = f"micro F1 {self.micro_f1:.4f}, macro F1 {self.macro_f1:.4f}, all labels right {self.exact:.2%}"
        return "\n".join([f"{head} ({count_of(self.texts, 'text')})", "", *class_table(self.classes, "label", "texts")])


def class_table(classes: Mapping[str, ClassCount], name: str, true: str) -> list[str]:
    """A header and a line for each class; `name` and `true` are the headings of classes and of their true counts."""
    width = max(len(name), *map(len, classes), 0)
    header = f"{name:<{width}}  {true:>5}  predicted  correct  precision  recall      F1"
    return [
        header,
        *(
            f"{label:<{width}}  {one.n_true:>5}  {one.n_predicted:>9}  {one.n_correct:>7}  "
            f"{one.precision:>9.4f}  {one.recall:>6.4f}  {one.f1:>6.4f}"
            for label, one in classes.items()
        ),
    ]


def label_report(true: Sequence[str], predicted: Sequence[str]) -> LabelReport:
    """Scores of predicted labels.

    Macro F1 is the mean over all labels that occur, true or predicted, as in scikit-learn's `f1_score`
    with average="macro".

    >>> report = label_report(["a", "a", "b"], ["a", "b", "b"])
    >>> round(report.accuracy, 3), round(report.macro_f1, 3)
    (0.667, 0.667)
    """
    assert len(true) == len(predicted) > 0
    n_true, n_predicted = Counter(true), Counter(predicted)
    n_correct = Counter(t for t, p in zip(true, predicted, strict=True) if t == p)
    labels = sorted({*n_true, *n_predicted})
    classes = {label: ClassCount(n_true[label], n_predicted[label], n_correct[label]) for label in labels}
    macro_f1 = sum(one.f1 for one in classes.values()) / len(classes)
    return LabelReport(classes, sum(n_correct.values()) / len(true), macro_f1)


def label_set_report(true: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> LabelSetReport:
    """Scores of predicted sets of labels; F1 as scikit-learn's `f1_score` over labels that occur.

    >>> report = label_set_report([{"a", "b"}, {"a"}, set()], [{"a"}, {"a"}, {"b"}])
    >>> round(report.micro_f1, 3), round(report.macro_f1, 3), round(report.exact, 3)
    (0.667, 0.5, 0.333)
    """
    assert len(true) == len(predicted) > 0
    pairs = [({*one}, {*other}) for one, other in zip(true, predicted, strict=True)]
    n_true, n_predicted = (Counter(label for pair in pairs for label in pair[side]) for side in (0, 1))
    n_correct = Counter(label for one, other in pairs for label in one & other)
    labels = sorted({*n_true, *n_predicted})
    classes = {label: ClassCount(n_true[label], n_predicted[label], n_correct[label]) for label in labels}
    together = ClassCount(n_true.total(), n_predicted.total(), n_correct.total())
    macro_f1 = sum(one.f1 for one in classes.values()) / max(1, len(classes))
    exact = sum(one == other for one, other in pairs) / len(pairs)
    return LabelSetReport(classes, len(pairs), exact, together.f1, macro_f1)
