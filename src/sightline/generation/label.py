"""Which class a picture or a text belongs to: ViT and DeiT, and encoders of text with a head for classes.

Not here: image files (`sightline.data.image`), marks around a text (`reading`), training (`sightline.tasks.classification`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sightline.data.arranging import cut_padded
from sightline.data.labelled import (
    Classification,
    check_labels,
    classification,
    collate_marked,
    labelled_corpora,
    read_examples,
    texts_a_line,
)
from sightline.data.prepared import spool
from sightline.errors import UserError
from sightline.evaluate.classes import LabelReport, label_report
from sightline.generation.chat import refuse_single
from sightline.generation.reading import OneOrTwo, TextReader, longest_text, text_reader
from sightline.network.halves import EncoderOnly

BATCH_TOKENS = 4096  # read at once


@dataclass(frozen=True)
class Label:
    """One class that a picture may belong to."""

    name: str
    number: int  # of the class
    probability: float


@torch.inference_mode()
def label(
    network: EncoderOnly, pixels: Float[Tensor, "channels height width"], names: Mapping[int, str], top: int
) -> list[Label]:
    """The `top` likeliest labels, the likeliest first; a class without a name is called by its number."""
    logits = network(pixels.unsqueeze(0).to(next(network.parameters())))[0]  # to its device, in its numbers
    best = logits.softmax(-1, dtype=torch.float32).topk(top)
    ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [Label(names.get(i, str(i)), i, probability) for i, probability in ranked]


# --- Texts ---


def class_names(hf_config: Mapping[str, Any], n_classes: int) -> tuple[str, ...]:
    """What config.json calls the classes; those without a name are called as `transformers` calls them.

    >>> class_names({"id2label": {"1": "good"}}, 2)
    ('LABEL_0', 'good')
    """
    listed = {int(i): str(name) for i, name in (hf_config.get("id2label") or {}).items()}
    return tuple(listed.get(i, f"LABEL_{i}") for i in range(n_classes))


class LabelVerbs:
    """Labels of texts, for an encoder with a head for classes."""

    path: Path
    network: Any
    config: Any
    hf_config: dict[str, Any]
    device: torch.device
    tokenizer: Any

    @cached_property
    def reader(self) -> TextReader:
        """What turns texts into what the network reads."""
        stack, pad_id = self.config.encoder, max(0, self.hf_config.get("pad_token_id") or 0)
        types, size = stack.n_types, self.config.vocab_size
        return text_reader(self.tokenizer, pad_id, types, longest_text(stack), self.path, size)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Class i is called so; `UserError` where the network tells no classes apart."""
        kind = self.hf_config.get("problem_type") or "single_label_classification"
        if self.config.head != "text_class":
            raise UserError(
                f"{self.path}: was saved without a head for classes of texts; train --task classify adds one"
            )
        if kind != "single_label_classification" or self.config.n_classes < 2:
            raise UserError(f"{self.path}: gives numbers or several labels at once ({kind}), not one label of many")
        return class_names(self.hf_config, self.config.n_classes)

    def classify(self, texts: Sequence[OneOrTwo]) -> list[Classification]:
        """A label for each text, or pair of texts, in their order; what is longer than the network reads is cut.

        >>> model.classify(["Who wrote Faust?"])[0].label  # doctest: +SKIP
        'HUM'
        """
        refuse_single(texts, "classify")
        labels, reader = self.labels, self.reader
        rows = reader.read(texts)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        order, found = np.argsort(lengths, kind="stable"), dict[int, list[float]]()
        for part in cut_padded(order, lengths[order], BATCH_TOKENS) if rows else []:
            chosen = part.tolist()
            batch = collate_marked([rows[i] for i in chosen], [0] * len(chosen), reader.side.pad_id, reader.typed)
            with torch.inference_mode():
                logits = self.network(*batch.to(self.device).inputs)
            found |= zip(chosen, logits.softmax(1, dtype=torch.float32).tolist(), strict=True)
        return [classification(labels, found[i]) for i in range(len(rows))]

    def evaluate(self, paths: Sequence[str]) -> LabelReport:
        """Accuracy and F1 on labelled files; `UserError` where a label is none of the model's."""
        corpora, labels = spool(labelled_corpora(paths)), self.labels
        n_texts = texts_a_line(corpora)
        check_labels(corpora, labels, n_texts)
        rows = [row for corpus in corpora for row in read_examples(corpus.paths[0], n_texts)]
        found = self.classify([texts for texts, _ in rows])
        return label_report([label for _, label in rows], [one.label for one in found])
