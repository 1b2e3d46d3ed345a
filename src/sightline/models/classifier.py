"""A text classifier trained here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.checkpoint.folder import Folder
from sightline.checkpoint.trained import CONFIG, noted
from sightline.config.settings import meaningful
from sightline.data.arranging import cut_padded
from sightline.data.labelled import (
    Classification,
    LabelledBatch,
    check_labels,
    classification,
    collate_labelled,
    labelled_corpora,
    read_labelled,
)
from sightline.data.prepared import spool
from sightline.decode.translator import clean_text
from sightline.errors import UserError
from sightline.evaluate.classes import LabelReport, label_report
from sightline.models.model import Model
from sightline.models.pairs import HeadVerbs
from sightline.network.parameters import count_parameters
from sightline.training.losses import label_loss

if TYPE_CHECKING:
    from sightline.inspect.heads import Head


def logits_of(network: nn.Module, batches: Iterable[LabelledBatch], device: torch.device) -> Tensor:
    """Scores of all texts, in the order of the batches, on the CPU."""
    with torch.inference_mode():
        return torch.cat([network(*batch.to(device).inputs).float().cpu() for batch in batches])


class Classifier(HeadVerbs, Model):
    """A trained classifier; made by `sightline.load`."""

    does = "sorts texts"
    reads = "labelled"

    def __init__(self, directory: Folder) -> None:
        self.path = directory.path
        self.network = directory.network
        self.tokenizer = directory.tokenizer
        self.labels = _labels(directory)
        self.config = directory.config
        self.about = directory.about
        self.device = torch.device(directory.device)

    def classify(self, texts: Sequence[str]) -> list[Classification]:
        """A label for each text, in their order. What is beyond `data.max_length` pieces of a text is not read.

        >>> model.classify(["Who wrote Faust?"])[0].label  # doctest: +SKIP
        'HUM'
        """
        if not texts:
            return []
        found: dict[int, list[float]] = {}
        for rows, batch in self._batches(texts):
            found |= zip(rows, logits_of(self.network, [batch], self.device).softmax(1).tolist(), strict=True)
        return [classification(self.labels, found[i]) for i in range(len(texts))]

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], LabelledBatch]]:
        """Texts of like length together, and which they are."""
        pieces = self.tokenizer.encode_batch([clean_text(text) for text in texts])
        tokens = [row[: self.config.data.max_length - 1] for row in pieces]
        lengths = np.array([len(row) + 1 for row in tokens])
        order = np.argsort(lengths, kind="stable")
        for part in cut_padded(order, lengths[order], self.config.decode.batch_tokens):
            yield part.tolist(), self._batch([tokens[i] for i in part.tolist()])

    def _batch(self, tokens: Sequence[list[int]]) -> LabelledBatch:
        return collate_labelled(tokens, [0] * len(tokens), self.tokenizer.pad_id, self.tokenizer.eos_id)

    def evaluate(self, paths: Sequence[str]) -> LabelReport:
        """Accuracy and F1 on labelled files; `UserError` where a label is none of the model's."""
        rows = self._labelled(paths)
        found = self.classify([text for text, _ in rows])
        return label_report([label for _, label in rows], [one.label for one in found])

    def head_importance(self, paths: Sequence[str]) -> "dict[Head, float]":
        """How much the loss on labelled files would change with each head; `UserError` as of `evaluate`."""
        from sightline.inspect.importance import Example, importance_over

        texts, labels = zip(*self._labelled(paths), strict=True)
        numbers = torch.tensor([self.labels.index(label) for label in labels])
        parts = ((len(rows), replace(batch, labels=numbers[rows])) for rows, batch in self._batches(texts))
        return importance_over(self.network, (Example(n, self._loss_of(batch)) for n, batch in parts))

    def _loss_of(self, batch: LabelledBatch) -> Callable[[nn.Module], Tensor]:
        there = batch.to(self.device)
        return lambda network: label_loss(network(there.src, there.src_mask), there.labels).objective

    def _labelled(self, paths: Sequence[str]) -> list[tuple[str, str]]:
        """Texts and labels of files; `UserError` where a label is none of the model's."""
        corpora = spool(labelled_corpora(paths))
        check_labels(corpora, self.labels)
        return [row for corpus in corpora for row in read_labelled(corpus.paths[0])]

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made."""
        return {
            "parameters": count_parameters(self.network),
            "vocabulary": self.tokenizer.vocab_size,
            **self.about,
            **meaningful(self.config),
        }


def _labels(directory: Folder) -> tuple[str, ...]:
    """Class i is the label i; `UserError` where there are not as many."""
    labels, n_outputs = noted(directory.path, directory.about, "labels", list), directory.config.model.n_outputs
    if len(labels) != n_outputs:
        raise UserError(f"{directory.path / CONFIG}: has {len(labels)} labels, but the model {n_outputs} classes")
    return tuple(labels)
