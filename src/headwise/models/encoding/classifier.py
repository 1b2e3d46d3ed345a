"""Text classifiers: trained here, or a pretrained encoder or XLNet with a head for classes of texts.

With a single output it is a cross-encoder, which scores a text or a pair of texts, such as a query and a passage.
Nothing here needs torch; `torch_classifier` has what does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from headwise.errors import UserError
from headwise.evaluate.classes import LabelReport, LabelSetReport, label_report, label_set_report
from headwise.evaluate.numbers import RegressionReport, regression_report
from headwise.importing import torch_needed
from headwise.models.encoding.embedding import EmbeddingModel
from headwise.models.encoding.encoder_network import encoder_embedder, encoder_network
from headwise.models.encoding.label import (
    BATCH_TOKENS,
    NUMBER,
    ONE,
    SEVERAL,
    Prediction,
    Regression,
    class_names,
    classification,
    label_set,
    problem_type,
)
from headwise.models.encoding.library_encoder import EncoderNetwork, sigmoid, softmax
from headwise.models.encoding.reading import OneOrTwo, TextReader, reader_of, text_reader
from headwise.models.encoding.vectors import TextEmbedder, pad_id_of
from headwise.models.introspection import PrunableModel, WalkableModel
from headwise.models.model import Model, refuse_single
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.trained import CONFIG, noted
from headwise.runtime.search.translator import clean_text
from headwise.text.files.labelled_texts import (
    check_class,
    labelled_corpora,
    number_label,
    read_with,
    several_labels,
    texts_per_line,
)
from headwise.text.prepared.prepared import spool

if TYPE_CHECKING:
    from headwise.pytorch.inspect.heads import Head
    from headwise.pytorch.models.classifier import ClassifierInTorch


ACTIVATIONS = ("Sigmoid", "Identity")  # of sentence-transformers, by the class in torch
THRESHOLD = 0.5  # probability above which a text has a label


@dataclass(frozen=True)
class RankedText:
    """A candidate with its score."""

    index: int  # in the list of candidates, from 0
    score: float
    text: str

    def as_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def ranked_texts(candidates: Sequence[str], scores: Sequence[float]) -> list[RankedText]:
    """The candidates, best first; equal ones in their order.

    >>> [one.index for one in ranked_texts(["a", "b", "c"], [0.1, 0.7, 0.1])]
    [1, 0, 2]
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [RankedText(i, scores[i], candidates[i]) for i in order]


def score_activation(hf_config: Mapping[str, Any]) -> str:
    """The function of the scores: that of config.json, or Sigmoid, as in `CrossEncoder` of sentence-transformers.

    https://github.com/UKPLab/sentence-transformers/blob/v5.1.0/sentence_transformers/cross_encoder/CrossEncoder.py

    >>> score_activation({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})
    'Identity'
    """
    newer = (hf_config.get("sentence_transformers") or {}).get("activation_fn")
    named = newer or hf_config.get("sbert_ce_default_activation_function") or ACTIVATIONS[0]
    found = str(named).rpartition(".")[2]
    if found not in ACTIVATIONS:
        raise UserError(f"config.json: the activation function {named} is not supported, only {', '.join(ACTIVATIONS)}")
    return found


class Classifier(Model):
    """A model that labels texts."""

    does = "labels texts"
    usual_task = "classify"
    problem: str
    """The kind of prediction: one label, several labels, or a number; as in `transformers`."""
    labels: tuple[str, ...]
    """The name of each class."""
    reader: TextReader
    """Turns texts into what the network reads; longer texts are cut."""
    batch_tokens = BATCH_TOKENS
    """Tokens in a batch of torch."""
    compute = "float32"
    """Precision of the weights in the compiled library; may be set to "int8"."""

    def classify(self, texts: Sequence[OneOrTwo], threshold: float | None = None) -> list[Prediction]:
        """A label for each text, or pair of texts, with the probability of every label; long texts are cut.

        Each is a `headwise.models.encoding.label.Classification`; from a model for several labels (`problem_type`
        multi_label_classification) a `LabelSet`, and from one for numbers (regression) a `Regression`.

        Args:
            texts: texts, or pairs of texts in tuples.
            threshold: probability above which a text has a label, for models with several; None = 0.5.

        >>> model.classify(["Who wrote Faust?"])[0].label  # doctest: +SKIP
        'HUM'
        """
        refuse_single(texts, "classify")
        if threshold is not None and (self.problem != SEVERAL or not 0 < threshold < 1):
            raise UserError(f"threshold = {threshold}: is for models with several labels for a text, between 0 and 1")
        labels, logits = self.labels, self.logits(texts)
        if self.problem == NUMBER:
            return [Regression(value) for value in logits[:, 0].tolist()]
        if self.problem == SEVERAL:
            least = THRESHOLD if threshold is None else threshold
            return [label_set(labels, row, least) for row in sigmoid(logits).tolist()]
        return [classification(labels, row) for row in softmax(logits).tolist()]

    def logits(self, texts: Sequence[OneOrTwo]) -> Float32[np.ndarray, "texts classes"]:
        """The output of the network for each text, or pair of texts."""
        found = self.texts.outputs(self.reader.read(texts), self.reader.typed)
        return np.stack(found) if texts else np.zeros((0, len(self.labels)), np.float32)

    @property
    def texts(self) -> EncoderNetwork:
        """The network as it reads texts now: in the compiled library, or a torch module."""
        return encoder_network(self, self.batch_tokens)

    def evaluate(self, paths: Sequence[str]) -> LabelReport | LabelSetReport | RegressionReport:
        """Accuracy and F1, or errors of numbers, on labelled files; `UserError` for an unknown label."""
        texts, true = self.examples(paths)
        found: list[Any] = self.classify(texts)
        if self.problem == NUMBER:
            return regression_report(true, [one.value for one in found])
        if self.problem == SEVERAL:
            return label_set_report(true, [one.labels for one in found])
        return label_report(true, [one.label for one in found])

    def examples(self, paths: Sequence[str]) -> tuple[list[OneOrTwo], list[Any]]:
        """Texts of files, and for each its label, its labels, or its number; `UserError` for an unknown label."""
        corpora = spool(labelled_corpora(paths))
        n_texts = 1 if self.reader.separator is None else texts_per_line(corpora)
        rows = read_with(corpora, n_texts, label_reader(self.problem, self.labels), self.problem == SEVERAL)
        return [texts for texts, _ in rows], [label for _, label in rows]


class HeadedClassifier(Classifier, PrunableModel):
    """A Transformer that labels texts."""

    def torch(self) -> ClassifierInTorch:
        with torch_needed():
            from headwise.pytorch.models.classifier import ClassifierInTorch
        return ClassifierInTorch(self)

    def head_importance(self, given: Sequence[OneOrTwo], targets: Sequence[Any]) -> dict[Head, float]:
        """The sensitivity of the loss on these texts to each head (`headwise.pytorch.inspect.importance`).

        `targets` are labels, by name or number, lists of labels, or numbers. `UserError` for an unknown one.
        """
        return self.torch().head_importance(given, targets)


class TrainedClassifier(HeadedClassifier):
    """A text classifier that was trained here."""

    problem = ONE

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder)
        _ = self.labels  # which must fit the network

    @property
    def head(self) -> str:
        """The kind of classifier."""
        return "trained"

    @property
    def batch_tokens(self) -> int:
        """Tokens in a batch of torch."""
        return self.config.decode.batch_tokens

    @cached_property
    def labels(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The name of each class."""
        labels, n_outputs = noted(self.path, self.about, "labels", list), self.config.model.n_outputs
        if len(labels) != n_outputs:
            raise UserError(f"{self.path / CONFIG}: has {len(labels)} labels, but the model {n_outputs} classes")
        return tuple(labels)

    @cached_property
    def reader(self) -> TextReader:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Turns texts into what the network reads; longer texts are cut."""
        longest = self.config.data.max_length
        return TextReader(self.tokenizer, (), None, (self.tokenizer.eos_id,), False, longest, clean=clean_text)


class LabelledClassifier(Classifier, EmbeddingModel):
    """A pretrained classifier, which also embeds texts."""

    @cached_property
    def problem(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The kind of prediction: one label, several labels, or a number; as in `transformers`."""
        return problem_type(self.hf_config, self.config.n_classes)

    @cached_property
    def labels(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The name of each class."""
        return class_names(self.hf_config, self.config.n_classes)

    @property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return replace(self._embedder, network=self._states)

    @cached_property
    def _embedder(self) -> TextEmbedder:
        return encoder_embedder(self, self._states)

    @property
    def _states(self) -> EncoderNetwork:
        """The network whose states are pooled."""
        return self.texts


class PretrainedClassifier(LabelledClassifier, HeadedClassifier, WalkableModel):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A pretrained encoder with a head for classes of texts."""

    @property
    def head(self) -> str:
        """The kind of classifier."""
        return "text_class"

    @cached_property
    def reader(self) -> TextReader:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Turns texts into what the network reads; longer texts are cut."""
        return reader_of(self)


class CrossEncoder(PretrainedClassifier):
    """A pretrained encoder with a single output, the score of a text or a pair of texts."""

    does = "scores texts and pairs of texts"

    @property
    def head(self) -> str:
        """The kind of classifier."""
        return "score"

    def rerank(self, query: str, candidates: Sequence[str]) -> list[RankedText]:
        """The candidates in the order of their scores for a query, best first.

        Scores are those of `CrossEncoder.predict` in sentence-transformers: the logit, between 0 and 1 by the sigmoid
        function unless config.json names another activation.

        >>> model.rerank("Who wrote Faust?", ["A play.", "Goethe wrote it."])[0].index  # doctest: +SKIP
        1
        """
        refuse_single(candidates, "rerank")
        scores = self.logits([(query, text) for text in candidates])[:, 0]
        as_logits = score_activation(self.hf_config) == "Identity"
        return ranked_texts(candidates, (scores if as_logits else sigmoid(scores)).tolist())


class XLNetLabeller(LabelledClassifier):
    """A pretrained XLNet with a head for classes of texts."""

    @property
    def head(self) -> str:
        """The kind of classifier."""
        return "permutation"

    @cached_property
    def reader(self) -> TextReader:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Turns texts into what the network reads; longer texts are cut."""
        pad_id, types = pad_id_of(self.hf_config), 3
        return text_reader(self.tokenizer, pad_id, types, None, self.path, self.config.vocab_size)

    @property
    def _states(self) -> EncoderNetwork:
        with torch_needed():
            from headwise.pytorch.models.classifier import content_states
        return content_states(self)


def label_reader(problem: str, known: Sequence[str]) -> Callable[[str, str], Any]:
    """Reads the label of a line at a location; `UserError` if it is not `known`, or no number."""

    def one_label(label: str, location: str) -> str:
        check_class(label, known, location)
        return label

    return {ONE: one_label, SEVERAL: partial(several_labels, known=known), NUMBER: number_label}[problem]
