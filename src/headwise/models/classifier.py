"""Text classifiers: trained here, or a pretrained encoder or XLNet with a head for classes of texts."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.architectures.xlnet import XLNetShape
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.trained import CONFIG, noted
from headwise.config.settings import RunConfig
from headwise.data.labelled import Classification, LabelledBatch, classification
from headwise.data.labelled_texts import check_labels, labelled_corpora, read_examples, texts_per_line
from headwise.data.prepared import spool
from headwise.decode.translator import clean_text
from headwise.errors import UserError
from headwise.evaluate.classes import LabelReport, label_report
from headwise.generation.chat import refuse_single
from headwise.generation.label import BATCH_TOKENS, class_names
from headwise.generation.permutation import ContentStream
from headwise.generation.reading import OneOrTwo, TextReader, reader_of, text_reader
from headwise.generation.vectors import TextEmbedder, embed_texts, text_embedder
from headwise.inspect.heads import Head
from headwise.inspect.importance import Example, importance_over
from headwise.inspect.inputs import EncodedInput
from headwise.models.inputs import encoded_text, label_number
from headwise.models.introspection import (
    attend_input,
    inspect_input,
    mask_model_heads,
    prune_model,
    trace_input,
    walk_input,
    walks_of_input,
)
from headwise.models.model import Model, only_with
from headwise.training.loss import label_loss

TRAINED, PRETRAINED, XLNET = "trained", "text_class", "permutation"  # which head it is


def logits_of(network: nn.Module, batches: Iterable[LabelledBatch], device: torch.device) -> Tensor:
    """Logits of all texts, in the order of the batches, on the CPU."""
    with torch.inference_mode():
        return torch.cat([network(*batch.to(device).inputs).float().cpu() for batch in batches])


class Classifier(Model):
    """A text classifier. A pretrained one also embeds texts; only Transformers have attention to look at."""

    does = "labels texts"
    usual_task = "classify"
    attend = only_with(PRETRAINED)(attend_input)
    trace = only_with(PRETRAINED)(trace_input)
    look_inside = only_with(PRETRAINED)(inspect_input)
    walk = only_with(PRETRAINED)(walk_input)
    walks = only_with(PRETRAINED)(walks_of_input)
    mask_heads = only_with(TRAINED, PRETRAINED)(mask_model_heads)
    prune = only_with(TRAINED, PRETRAINED)(prune_model)
    embed = only_with(PRETRAINED, XLNET)(embed_texts)

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        if self.head == TRAINED:
            _ = self.labels  # which must fit the network

    @property
    def head(self) -> str:
        """Whether it was trained here, is a pretrained Transformer, or an XLNet."""
        if isinstance(self.config, RunConfig):
            return TRAINED
        return XLNET if isinstance(self.config, XLNetShape) else PRETRAINED

    def classify(self, texts: Sequence[OneOrTwo]) -> list[Classification]:
        refuse_single(texts, "classify")
        labels, found = self.labels, dict[int, list[float]]()
        for rows, batch in self._batches(texts, [0] * len(texts)):
            found |= zip(rows, logits_of(self.network, [batch], self.device).softmax(1).tolist(), strict=True)
        return [classification(labels, found[i]) for i in range(len(texts))]

    def evaluate(self, paths: Sequence[str]) -> LabelReport:
        """Accuracy and F1 on labelled files; `UserError` for an unknown label."""
        texts, labels = self.examples(paths)
        return label_report(labels, [one.label for one in self.classify(texts)])

    def examples(self, paths: Sequence[str]) -> tuple[list[OneOrTwo], list[str]]:
        """Texts and labels of files; `UserError` for an unknown label."""
        corpora, labels = spool(labelled_corpora(paths)), self.labels
        n_texts = 1 if self.reader.separator is None else texts_per_line(corpora)
        check_labels(corpora, labels, n_texts)
        rows = [row for corpus in corpora for row in read_examples(corpus.paths[0], n_texts)]
        return [texts for texts, _ in rows], [label for _, label in rows]

    @only_with(TRAINED, PRETRAINED)
    def head_importance(self, given: Sequence[OneOrTwo], targets: Sequence[Any] = ()) -> dict[Head, float]:
        if not given or len(targets) != len(given):
            raise UserError(f"{len(given)} inputs and {len(targets)} targets; target n must belong to input n")
        batches = self._batches(given, [self._number(label) for label in targets])
        return importance_over(
            self.network, (Example(len(rows), partial(_loss, batch.to(self.device))) for rows, batch in batches)
        )

    def _number(self, label: Any) -> int:
        if self.head == PRETRAINED:
            return label_number(self, label)
        if label not in self.labels:
            raise UserError(f"label {label!r}: this model knows {', '.join(self.labels)}")
        return self.labels.index(label)

    def _batches(self, texts: Sequence[OneOrTwo], classes: Sequence[int]) -> Iterator[tuple[list[int], LabelledBatch]]:
        """Batches of texts of similar length, and which texts they are."""
        return self.reader.batches(self.reader.read(texts), self._batch_tokens, classes)

    @property
    def _batch_tokens(self) -> int:
        return self.config.decode.batch_tokens if self.head == TRAINED else BATCH_TOKENS

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The name of each class; `UserError` where the head is not for one label of many."""
        if self.head == TRAINED:
            labels, n_outputs = noted(self.path, self.about, "labels", list), self.config.model.n_outputs
            if len(labels) != n_outputs:
                raise UserError(f"{self.path / CONFIG}: has {len(labels)} labels, but the model {n_outputs} classes")
            return tuple(labels)
        kind = self.hf_config.get("problem_type") or "single_label_classification"
        if kind != "single_label_classification" or self.config.n_classes < 2:
            raise UserError(f"{self.path}: gives numbers or several labels at once ({kind}), not one label of many")
        return class_names(self.hf_config, self.config.n_classes)

    @cached_property
    def reader(self) -> TextReader:
        """Turns texts into what the network reads; longer texts are cut."""
        if self.head == TRAINED:
            longest = self.config.data.max_length
            return TextReader(self.tokenizer, (), None, (self.tokenizer.eos_id,), False, longest, clean=clean_text)
        if self.head == PRETRAINED:
            return reader_of(self)
        pad_id = max(0, self.hf_config.get("pad_token_id") or 0)
        return text_reader(self.tokenizer, pad_id, 3, None, self.path, self.config.vocab_size)  # three types of tokens

    @cached_property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        if self.head == XLNET:
            network, stack, longest = ContentStream(self.network), self.config, None
        else:
            network, stack, longest = self.network, self.config.encoder, self.config.encoder.longest
        return text_embedder(network, self.tokenizer, self.hf_config, stack.d_model, longest, self.path)

    def observed(self, given: str) -> EncodedInput:
        """A text as the inspector reads it."""
        return encoded_text(self, given)


def _loss(batch: LabelledBatch, network: nn.Module) -> Tensor:
    return label_loss(network(*batch.inputs), batch.labels).objective
