"""How well labels are found: accuracy, and precision, recall and F1 of each class."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ClassCount:
    """How often a label is right."""

    n_true: int  # texts that have it
    n_predicted: int  # texts that were given it
    n_correct: int  # both

    @property
    def precision(self) -> float:
        """Correct / predicted; 0 where nothing was."""
        return self.n_correct / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        """Correct / true; 0 where there is none."""
        return self.n_correct / self.n_true if self.n_true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both, 2 correct / (true + predicted)."""
        return 2 * self.n_correct / (self.n_true + self.n_predicted)


@dataclass(frozen=True)
class LabelReport:
    """Scores of a test set."""

    classes: dict[str, ClassCount]
    accuracy: float
    macro_f1: float

    def as_json(self) -> dict[str, Any]:
        """`{"accuracy": ..., "macro_f1": ..., "texts": n, "classes": {label: {...}}}`."""
        classes = {
            label: {**asdict(one), "precision": one.precision, "recall": one.recall, "f1": one.f1}
            for label, one in self.classes.items()
        }
        texts = sum(one.n_true for one in self.classes.values())
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1, "texts": texts, "classes": classes}

    def render(self) -> str:
        """A report for people."""
        width = max(len("label"), *map(len, self.classes))
        lines = [f"accuracy {self.accuracy:.2%}, macro F1 {self.macro_f1:.4f}", ""]
        lines.append(f"{'label':<{width}}  texts  predicted  correct  precision  recall      F1")
        for label, one in self.classes.items():
            lines.append(
                f"{label:<{width}}  {one.n_true:>5}  {one.n_predicted:>9}  {one.n_correct:>7}  "
                f"{one.precision:>9.4f}  {one.recall:>6.4f}  {one.f1:>6.4f}"
            )
        return "\n".join(lines)


def label_report(true: Sequence[str], predicted: Sequence[str]) -> LabelReport:
    """Scores of predicted labels.

    Macro F1 is the plain mean over all labels that are true or predicted somewhere, as in scikit-learn's `f1_score`
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
