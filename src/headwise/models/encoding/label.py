"""Labels of texts: the predictions of classifiers, kinds of problems, and names of classes.

See `pytorch.models.vision` for labels of images, `reading` for special tokens around a text and
`headwise.pytorch.tasks` for training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwise.errors import UserError, unknown

BATCH_TOKENS = 4096  # in a batch
ONE, SEVERAL, NUMBER = PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")


@dataclass(frozen=True)
class Classification:
    """The prediction of a classifier."""

    label: str  # the most probable
    probability: float
    probabilities: dict[str, float]  # of every label

    def as_line(self) -> str:
        """Label and probability, separated by a tab."""
        return f"{self.label}\t{self.probability:.4f}"

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def classification(labels: Sequence[str], probabilities: Sequence[float]) -> Classification:
    """The prediction with these probabilities.

    >>> classification(["no", "yes"], [0.25, 0.75]).label
    'yes'
    """
    by_label = dict(zip(labels, probabilities, strict=True))
    best = max(by_label, key=by_label.__getitem__)
    return Classification(best, by_label[best], by_label)


@dataclass(frozen=True)
class LabelSet:
    """The prediction of a classifier with any number of labels for a text."""

    labels: tuple[str, ...]  # those above the threshold, the most probable first
    probabilities: dict[str, float]  # of every label; independent, so their sum means nothing

    def as_line(self) -> str:
        """Labels and probabilities, each separated by commas, with a tab between both."""
        return f"{','.join(self.labels)}\t{','.join(f'{self.probabilities[label]:.4f}' for label in self.labels)}"

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"labels": [*self.labels], "probabilities": self.probabilities}


def label_set(labels: Sequence[str], probabilities: Sequence[float], threshold: float) -> LabelSet:
    """The labels with a probability above `threshold`.

    >>> label_set(["cold", "wet", "dark"], [0.6, 0.9, 0.2], threshold=0.5).labels
    ('wet', 'cold')
    """
    by_label = dict(zip(labels, probabilities, strict=True))
    ranked = sorted(by_label, key=by_label.__getitem__, reverse=True)
    return LabelSet(tuple(label for label in ranked if by_label[label] > threshold), by_label)


@dataclass(frozen=True)
class Regression:
    """The prediction of a network that gives a number."""

    value: float  # in the units of the training data

    def as_line(self) -> str:
        """The number."""
        return f"{self.value:.6g}"

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


Prediction = Classification | LabelSet | Regression


def problem_type(hf_config: Mapping[str, Any], n_classes: int) -> str:
    """One of `PROBLEMS`: as config.json says, else as `transformers` decides by the number of outputs.

    >>> problem_type({}, 1), problem_type({"problem_type": "multi_label_classification"}, 3)
    ('regression', 'multi_label_classification')

    Raises:
        UserError: an unknown problem type, or one that does not fit the number of outputs.
    """
    named = hf_config.get("problem_type") or (NUMBER if n_classes == 1 else ONE)
    if named not in PROBLEMS:
        raise unknown("problem_type in config.json", str(named), PROBLEMS)
    if (named == NUMBER) != (n_classes == 1) and named != SEVERAL:
        raise UserError(f"config.json: problem_type = {named} does not fit {n_classes} outputs")
    return named


def class_names(hf_config: Mapping[str, Any], n_classes: int) -> tuple[str, ...]:
    """The names of classes in config.json; those without one are named as in `transformers`.

    >>> class_names({"id2label": {"1": "good"}}, 2)
    ('LABEL_0', 'good')
    """
    listed = {int(i): str(name) for i, name in (hf_config.get("id2label") or {}).items()}
    return tuple(listed.get(i, f"LABEL_{i}") for i in range(n_classes))
