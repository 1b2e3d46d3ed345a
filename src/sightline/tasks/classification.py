"""Texts to labels: training a classifier on labelled TSV, and using one."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from sightline.architectures import build_pooled
from sightline.checkpoint.folder import Folder
from sightline.checkpoint.trained import CONFIG, noted
from sightline.config import RunConfig, TrainConfig, longest_sequence, meaningful
from sightline.data.batching import EndlessStream, cut_padded
from sightline.data.epochs import walk_epochs
from sightline.data.first_look import has_header
from sightline.data.labelled import (
    Classification,
    LabelledBatch,
    LabelledCorpus,
    ReadTexts,
    check_labels,
    classification,
    collate_labelled,
    count_labels,
    labelled_corpora,
    read_labelled,
)
from sightline.data.prepared import learn_tokenizer, prepare, spool
from sightline.data.side import Side
from sightline.decode.translator import clean_text
from sightline.errors import UserError
from sightline.evaluate.classes import LabelReport, label_report
from sightline.model import Model
from sightline.network.parameters import count_parameters
from sightline.pairs import HeadVerbs
from sightline.tasks.job import OURS, FolderLayout, TrainRequest, choose_tokenizer, file_names, held_out, hold_out, say
from sightline.training.loss import Loss, at_least_float32
from sightline.training.shares import Mine, Said, Validation
from sightline.training.step import Objective

if TYPE_CHECKING:
    from sightline.inspect.heads import Head


@dataclass(frozen=True)
class ClassificationJob:
    """See `sightline.tasks.job.Job`."""

    config: RunConfig
    tokenizer: Side
    about: dict[str, Any]
    train: LabelledCorpus | ReadTexts
    valid: LabelledCorpus | ReadTexts
    signature: str = ""
    layout: FolderLayout = OURS

    @property
    def baseline(self) -> dict[str, float]:
        return label_baseline(self.valid.classes, len(self.train.labels))

    def network(self) -> nn.Module:
        return build_pooled(self.config.model)

    def objective(self, network: nn.Module) -> Objective:
        return classification_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[LabelledBatch]:
        train, seed, tokens = self.train, self.config.train.seed, self.config.train.tokens_per_batch

        def load(rows: Any) -> LabelledBatch:
            return train.load(self.tokenizer, rows)

        return EndlessStream(
            lambda start: walk_epochs(lambda epoch: train.plan(tokens, seed, epoch), load, start), state, pin=pin
        )

    def validation(self, network: nn.Module, device: torch.device) -> Validation:
        """Cross-entropy without smoothing, accuracy and macro F1 of the whole validation set."""

        def said(mine: Mine) -> Said:
            plan = self.valid.plan(self.config.train.tokens_per_batch, seed=0, epoch=0)
            batches = (self.valid.load(self.tokenizer, rows) for rows in mine(plan))
            return said_of_labels((logits_of(network, [batch], device), batch.labels) for batch in batches)

        return Validation(said, partial(label_figures, self.valid.labels))


def classification_job(request: TrainRequest, config: RunConfig, folder: Path) -> ClassificationJob:
    """Read, check and tokenise everything a classifier is trained on."""
    check_length(config)
    files = labelled_corpora(request.train)
    parts = hold_out(request, files, labelled=True)
    files, valid = spool(files), [] if parts else spool(labelled_corpora(request.valid))
    for corpus in files + valid:
        if has_header(list(islice(read_labelled(corpus.paths[0]), 1))):
            say(
                request, f"{corpus}: line 1 looks like a header and would be learnt as a text with its label; remove it"
            )
    train, valid = (parts.train, [parts.valid]) if parts else (files, valid)
    counts = count_labels(train)
    say_seen_once(request, counts)
    labels = [*counts]
    check_labels(valid, labels)
    tokenizer = choose_tokenizer(
        request,
        config,
        folder,
        lambda: learn_tokenizer(train, config.data, request.special, sources_only=True),
    )
    training, validating = (
        LabelledCorpus(
            prepare(files, tokenizer, config.data, progress=request.show, clean=False),
            tuple(labels),
            config.data.max_length,
        )
        for files in (train, valid)
    )
    say(request, f"training on {len(training):,} texts with {len(labels)} labels")
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, n_outputs=len(labels))
    about = {
        "corpus": {
            "train": file_names(request.train),
            "valid": file_names(request.valid),
            "texts": len(training),
            "key": training.prepared.key,
            "valid_key": validating.prepared.key,
            **held_out(parts),
        },
        "labels": labels,
        "material": _material(request, replace(config, model=model), labels, len(training)),
    }
    return ClassificationJob(replace(config, model=model), tokenizer, about, training, validating)


def _material(request: TrainRequest, config: RunConfig, labels: Sequence[str], n_texts: int) -> dict[str, str]:
    """What the model card says of it."""
    return {
        "vocabulary": f"{config.model.vocab_size:,} {config.data.subword} pieces",
        "labels": ", ".join(labels),
        "training data": f"{', '.join(file_names(request.train))}: {n_texts:,} texts",
    }


def say_seen_once(request: TrainRequest, counts: Mapping[str, int], what: str = "label") -> None:
    """A line on labels that stand once in what is trained on: from one example nothing is learnt."""
    rare = [label for label, count in counts.items() if count == 1]
    if rare:
        named = ", ".join(f"'{label}'" for label in rare[:5]) + ", ..." * (len(rare) > 5)
        say(
            request,
            f"seen once in training, which is too little to learn: {what} {named}; is it spelt as it should be?",
        )


def check_length(config: RunConfig) -> None:
    """`UserError` where texts longer than the network reads would be left."""
    limit = longest_sequence(config.model)
    if limit is not None and config.data.max_length > limit:
        raise UserError(
            f"model.max_len = {limit} is less than data.max_length = {config.data.max_length}, "
            "at which texts are cut; change one of them"
        )


def classification_objective(model: Callable[..., Tensor], train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of a text's label."""
    forward = torch.compile(model) if train.compile else model

    def objective(batch: LabelledBatch) -> Loss:
        return label_loss(forward(*batch.inputs), batch.labels, train.label_smoothing)

    return objective


def label_loss(
    logits: Float[Tensor, "*each classes"], labels: Int[Tensor, "*each"], label_smoothing: float = 0.0
) -> Loss:
    """Label-smoothed cross-entropy in nats of texts, or of their tokens but those of `data.tagged.IGNORED`, and how
    many the likeliest class gets right.
    """
    correct = (logits.argmax(-1) == labels).sum()
    flat = at_least_float32(logits).flatten(0, -2)
    objective = F.cross_entropy(flat, labels.flatten(), reduction="sum", label_smoothing=label_smoothing)
    return Loss(objective, {"accuracy": correct.float()})


def said_of_labels(batches: Iterable[tuple[Float[Tensor, "texts classes"], Int[Tensor, " texts"]]]) -> Said:
    """What a validation says of scores and labels: for each batch the loss without smoothing, the classes that are
    likeliest ("found") and those that are right.
    """
    said: Said = {"loss": [], "found": [], "right": []}
    for logits, labels in batches:
        scores = logits.float().cpu()
        said["loss"].append(label_loss(scores, labels).objective.item())
        said["found"].append(scores.argmax(1).tolist())
        said["right"].append(labels.tolist())
    return said


def label_baseline(classes: Iterable[Hashable], n_labels: int) -> dict[str, float]:
    """Figures of guessing: all labels are equally likely, or the most frequent class of the validation set is chosen.

    >>> label_baseline([0, 1, 1, 1], n_labels=2)
    {'loss': 0.693..., 'accuracy': 0.75}
    """
    counts = Counter(classes)
    return {"loss": math.log(n_labels), "accuracy": max(counts.values()) / counts.total()}


def label_figures(names: Sequence[str], said: Said) -> dict[str, float]:
    """Loss, accuracy and macro F1 of that."""
    found, right = ([names[i] for classes in said[which] for i in map(int, classes)] for which in ("found", "right"))
    report = label_report(right, found)
    return {"loss": sum(said["loss"]) / len(right), "accuracy": report.accuracy, "macro_f1": report.macro_f1}


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
