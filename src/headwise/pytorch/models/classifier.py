"""Classifiers of texts in torch: logits of batches, losses, the importance of heads, the states of an XLNet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.core.loss import Loss, binary_loss, label_loss, squared_loss
from headwise.errors import UserError
from headwise.models.encoding.label import NUMBER, ONE, SEVERAL
from headwise.models.encoding.reading import OneOrTwo
from headwise.models.encoding.vectors import pad_id_of
from headwise.pytorch.data.labelled import LabelledBatch, encoded_batches
from headwise.pytorch.inspect.heads import Head
from headwise.pytorch.inspect.importance import Example, importance_over
from headwise.pytorch.inspect.inputs import EncodedInput
from headwise.pytorch.models.inputs import encoded_text, label_number
from headwise.pytorch.models.model import ModelInTorch
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.search.permutation import ContentStream
from headwise.text.files.labelled_texts import number_label, several_labels

if TYPE_CHECKING:
    from headwise.models.encoding.classifier import HeadedClassifier, XLNetLabeller

LOSSES: dict[str, Callable[..., Loss]] = {ONE: label_loss, SEVERAL: binary_loss, NUMBER: squared_loss}


def logits_of(network: nn.Module, batches: Iterable[LabelledBatch], device: torch.device) -> Tensor:
    """Logits of all texts, in the order of the batches, on the CPU."""
    with torch.inference_mode():
        return torch.cat([network(*batch.to(device).inputs).float().cpu() for batch in batches])


def content_states(model: XLNetLabeller) -> TorchEncoder:
    """The states of the content stream of an XLNet."""
    return TorchEncoder(ContentStream(model.network), pad_id_of(model.hf_config))


class ClassifierInTorch(ModelInTorch):
    """A `HeadedClassifier` in torch."""

    def observed(self, given: str) -> EncodedInput:
        """A text as the inspector reads it."""
        return encoded_text(self.model, given)

    def head_importance(self, given: Sequence[OneOrTwo], targets: Sequence[Any] = ()) -> dict[Head, float]:
        model = self.model
        if not given or len(targets) != len(given):
            raise UserError(f"{len(given)} inputs and {len(targets)} targets; target n must belong to input n")
        labels = [_target(model, label) for label in targets]
        reader, loss = model.reader, LOSSES[model.problem]
        batches = encoded_batches(reader.read(given), labels, model.batch_tokens, reader.tokenizer.pad_id, reader.typed)
        examples = (Example(len(rows), partial(_loss, loss, batch.to(model.device))) for rows, batch in batches)
        return importance_over(model.network, examples)


def _target(model: HeadedClassifier, label: Any) -> Any:
    """A label as the loss takes it: a class, a number, or 0 or 1 for each of several labels."""
    if model.problem == ONE:
        return _number(model, label)
    if model.problem == NUMBER:
        return [number_label(str(label), "target")]
    names = label if isinstance(label, str) else ",".join(label)
    return label_row(several_labels(names, "target", model.labels), model.labels)


def _number(model: HeadedClassifier, label: Any) -> int:
    if model.head == "text_class":
        return label_number(model, label)
    if label not in model.labels:
        raise UserError(f"label {label!r}: this model knows {', '.join(model.labels)}")
    return model.labels.index(label)


def _loss(loss: Callable[..., Loss], batch: LabelledBatch, network: nn.Module) -> Tensor:
    return loss(network(*batch.inputs), batch.labels).objective


def label_row(labels: Collection[str], known: Sequence[str]) -> list[float]:
    """0 or 1 for each of the `known` labels of a text.

    >>> label_row({"wet"}, ["cold", "wet"])
    [0.0, 1.0]
    """
    return [float(label in labels) for label in known]
