"""Several labels for a text, and regression: losses and validation, as in `transformers` for these problem types.

Several labels have binary cross-entropy, averaged over labels; a number has the squared error. See `classification` for
one label for each text, and for the job.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.loss import Loss
from headwise.core.train import Objective
from headwise.errors import UserError
from headwise.evaluate.classes import label_set_report
from headwise.evaluate.numbers import regression_report
from headwise.models.encoding.classifier import Classifier
from headwise.models.encoding.label import NUMBER, ONE, SEVERAL, class_names
from headwise.models.model import Model
from headwise.pytorch.data.labelled import LabelledBatch
from headwise.pytorch.models.classifier import LOSSES, label_row
from headwise.pytorch.training.packed import forward_of
from headwise.pytorch.training.validation import Outputs
from headwise.text.files.corpus import Corpus
from headwise.text.files.labelled_texts import number_label, read_with, several_labels

METRICS = {SEVERAL: ("loss", "accuracy", "macro_f1"), NUMBER: ("loss",)}  # for `train.best_metric`


def problem_of(config: RunConfig, base: Model) -> str:
    """The problem type of a run that starts from `base`."""
    if config.data.problem_type != "auto":
        return config.data.problem_type
    return base.problem if isinstance(base, Classifier) else ONE


def check_one_label(config: RunConfig) -> None:
    """`UserError` for a problem type that training from scratch does not have."""
    if config.data.problem_type not in ("auto", ONE):
        raise UserError(f"data.problem_type = {config.data.problem_type}: needs --init, a pretrained encoder")


def settings_for_problem(config: RunConfig, problem: str) -> RunConfig:
    """The configuration with a metric that the problem has; `UserError` for label smoothing.

    The share of texts whose labels are all right is often zero for a long time, so F1 chooses the best model.
    """
    if problem == ONE:
        return config
    if config.train.label_smoothing:
        raise UserError(f"train.label_smoothing = {config.train.label_smoothing}: is for one label for a text")
    best = {SEVERAL: "macro_f1", NUMBER: "loss"}[problem] if config.train.best_metric == "accuracy" else ""
    if not best and config.train.best_metric not in METRICS[problem]:
        raise UserError(f"train.best_metric = {config.train.best_metric}: {problem} has {', '.join(METRICS[problem])}")
    return replace(config, train=replace(config.train, best_metric=best or config.train.best_metric))


def read_targets(
    corpora: Sequence[Corpus], n_texts: int, problem: str, known: Sequence[str] | None = None
) -> list[tuple[tuple[str, ...], Any]]:
    """The texts of each line, and its number or its labels; `UserError` for one that is not `known`."""
    if problem == NUMBER:
        return read_with(corpora, n_texts, number_label)
    return read_with(corpora, n_texts, lambda label, where: several_labels(label, where, known), unlabelled=True)


def names_of_outputs(corpora: Sequence[Corpus], n_texts: int, problem: str, base: Model) -> list[str]:
    """The names of the outputs: all labels of the training files, or the name that the number has."""
    rows = read_targets(corpora, n_texts, problem)
    if problem == NUMBER:
        return list(class_names(base.hf_config if base.config.n_classes == 1 else {}, 1))
    names = sorted({label for _, labels in rows for label in labels})
    if not names:
        raise UserError(f"{corpora[0]}: no text has a label; write 'text TAB label,label'")
    return names


def target_rows(targets: Iterable[Any], labels: Sequence[str], problem: str) -> list[list[float]]:
    """Targets as the loss takes them: a number, or 0 or 1 for each label."""
    return [[one] if problem == NUMBER else label_row(one, labels) for one in targets]


def problem_objective(network: nn.Module, train: TrainConfig, problem: str) -> Objective:
    """The loss of a problem type."""
    forward, loss = forward_of(network, train.compile), LOSSES[problem]

    def objective(batch: LabelledBatch) -> Loss:
        return loss(forward(batch), batch.labels)

    return objective


def problem_outputs(
    batches: Iterable[tuple[Float[Tensor, "texts outputs"], Float[Tensor, "texts outputs"]]], problem: str
) -> Outputs:
    """For each batch of logits and targets their loss and both."""
    outputs: Outputs = {"loss": [], "predicted": [], "true": []}
    for logits, targets in batches:
        scores = logits.float().cpu()
        outputs["loss"].append(LOSSES[problem](scores, targets).objective.item())
        outputs["predicted"].append(scores.tolist())
        outputs["true"].append(targets.tolist())
    return outputs


def problem_figures(labels: Sequence[str], outputs: Outputs, problem: str) -> dict[str, float]:
    """The loss and the metrics of `problem_outputs`; labels are those with a probability above 0.5."""
    predicted, true = ([row for rows in outputs[key] for row in rows] for key in ("predicted", "true"))
    loss = sum(outputs["loss"]) / len(true)
    if problem == NUMBER:
        report = regression_report(*([row[0] for row in rows] for rows in (true, predicted)))
        return {"loss": loss, "mae": report.mae, "pearson": report.pearson, "spearman": report.spearman}
    sets = (
        [[name for name, x in zip(labels, row, strict=True) if x > 0] for row in rows] for rows in (true, predicted)
    )
    found = label_set_report(*sets)
    return {"loss": loss, "accuracy": found.exact, "micro_f1": found.micro_f1, "macro_f1": found.macro_f1}


def problem_baseline(targets: Sequence[Sequence[float]], problem: str) -> dict[str, float]:
    """The loss of the best constant: the mean of the numbers, or how frequent each label is.

    >>> problem_baseline([[1.0], [3.0]], NUMBER), problem_baseline([[1.0, 0.0], [0.0, 0.0]], SEVERAL)
    ({'loss': 1.0}, {'loss': 0.346...})
    """
    rows = np.array(targets)
    if problem == NUMBER:
        return {"loss": float(rows.var())}
    entropies = [-p * math.log(p) - (1 - p) * math.log(1 - p) if 0 < p < 1 else 0.0 for p in rows.mean(0).tolist()]
    return {"loss": sum(entropies) / len(entropies)}
