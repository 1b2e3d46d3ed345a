"""Training token classification (named entities, parts of speech) with an encoder.

The first token of each word has the label. A sentence longer than `data.max_length` is split. Metrics are over whole
entities. See `heads` for the head, `headwise.text.files.tagged_texts` for files and `headwise.models.encoding.tag` for
prediction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.config.settings import RunConfig
from headwise.core.loss import label_loss
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.evaluate.baselines import Baseline, usual_tags
from headwise.evaluate.entities import tag_report
from headwise.models.encoding.classifier import Classifier
from headwise.models.encoding.encoder import EncoderModel
from headwise.models.encoding.reading import TextReader
from headwise.models.encoding.tag import PartOfSentence, read_words, word_logits
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.labelled import hold_out_examples
from headwise.pytorch.data.tagged import IGNORED, TaggedDataset
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.tasks.automatic import with_precision
from headwise.pytorch.tasks.classification import EncoderHeadJob, check_length, label_baseline, warn_of_rare_labels
from headwise.pytorch.tasks.from_scratch import encoder_from_scratch
from headwise.pytorch.tasks.heads import (
    ENCODERS,
    describe_run,
    head_message,
    labels_in_order,
    network_with_head,
    pretrained_head,
    with_head,
)
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.text.files.split import parse_validation_size
from headwise.text.files.tagged_texts import TaggedSentence, check_tags, count_tags, read_tagged
from headwise.text.prepared.file_hashes import short_hash


@dataclass(frozen=True)
class TaggingJob(EncoderHeadJob):
    """Tags for the words of sentences."""

    reader: TextReader = field(kw_only=True)
    known: Sequence[TaggedSentence] = field(kw_only=True)  # the sentences of `train`
    checked: Sequence[TaggedSentence] = field(kw_only=True)  # those of `valid`
    parts: Sequence[PartOfSentence] = field(kw_only=True)  # of these sentences

    @property
    def baseline(self) -> dict[str, float]:
        return label_baseline((tag for sentence in self.checked for tag in sentence.tags), len(self.train.labels))

    def simple_baseline(self) -> Baseline:
        """The most frequent tag of each word."""
        found = usual_tags(((one.words, one.tags) for one in self.known), [one.words for one in self.checked])
        report = tag_report([one.tags for one in self.checked], found)
        figures = {"accuracy": report.accuracy, "f1": report.all.f1}
        return Baseline("the most frequent tag of each word", figures, "a pretrained model (--init) would help")

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """For each sentence the loss of its words and their predicted classes."""
        tags, numbers = [one.tags for one in self.checked], {label: i for i, label in enumerate(self.valid.labels)}
        own = {sentence: number for number, sentence in enumerate(shard.of(range(len(tags))))}
        parts = [replace(one, sentence=own[one.sentence]) for one in self.parts if one.sentence in own]
        texts = TorchEncoder(network, self.reader.tokenizer.pad_id)
        found = [torch.from_numpy(logits) for logits in word_logits(texts, self.reader.typed, parts)]
        true = [torch.tensor([numbers[tag] for tag in tags[sentence]]) for sentence in own]
        losses = [label_loss(*one).objective.item() for one in zip(found, true, strict=True)]
        return {"loss": losses, "predicted": [logits.argmax(1).tolist() for logits in found]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Cross-entropy per word without smoothing, accuracy of words and F1 of entities."""
        tags, labels = [one.tags for one in self.checked], self.valid.labels
        report = tag_report(tags, [[labels[i] for i in classes] for classes in outputs["predicted"]])
        loss = sum(outputs["loss"]) / sum(map(len, tags))
        return {"loss": loss, "accuracy": report.accuracy, "f1": report.all.f1}


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> TaggingJob:
    """Read, check and tokenise the data that a pretrained encoder is fine-tuned on."""
    check_length(config)
    base: EncoderModel = FINE_TUNING.read(request.init)
    train, valid, held = _files(request)
    counts = count_tags(train, ", ".join(request.train))
    warn_of_rare_labels(request, counts, "tag")
    labels = labels_in_order(request, base, "token_class", [*counts])
    model = with_head(base, "token_class", labels)
    reader, length = model.reader, config.data.max_length
    parts = read_words(reader, [one.words for one in valid], length)
    training = read_tags(train, read_words(reader, [one.words for one in train], length), labels, reader.typed)
    amount = f"{len(train):,} sentences of {sum(counts.values()):,} words"
    notify(request, f"training on {amount} with {len(labels)} tags, validating on {len(valid):,}")
    known = pretrained_head(base, model)
    notify(request, head_message(base, f"{len(labels)} classes", known))
    corpus = {"sentences": len(train), "key": _key(train, reader), "valid_key": _key(valid, reader)}
    about = describe_run(request, model, config.model.dropout, amount, corpus, held, labels, "tags")

    def make() -> EncoderOnly:
        return network_with_head(base, model, known, config.model.dropout)

    config = with_precision(request, config, folder)
    config = replace(config, model=replace(config.model, n_outputs=len(labels)))
    validating = read_tags(valid, parts, labels, reader.typed)
    return TaggingJob(
        config, reader.tokenizer, about, training, validating, layout=SameLayout(model), make=make,
        reader=reader, known=train, checked=valid, parts=parts,
    )  # fmt: skip


def _texts(request: TrainRequest) -> Iterator[str]:
    return (" ".join(one.words) for path in request.train for one in read_tagged(path))


tagging_job = partial(encoder_from_scratch, fine_tuning_job, _texts)
FINE_TUNING = FineTuning(fine_tuning_job, (EncoderModel, Classifier), ENCODERS, "max_length")
JOBS = TaskJobs(tagging_job, FINE_TUNING)


def read_tags(
    sentences: Sequence[TaggedSentence], parts: Sequence[PartOfSentence], labels: Sequence[str], typed: bool
) -> TaggedDataset:
    """Parts of sentences with the class of each token."""
    numbers = {label: i for i, label in enumerate(labels)}
    classes = [[IGNORED] * len(part) for part in parts]
    for part, row in zip(parts, classes, strict=True):
        for word, first in zip(part.words, part.firsts, strict=True):
            row[first] = numbers[sentences[part.sentence].tags[word]]
    return TaggedDataset([part.read for part in parts], classes, tuple(labels), typed)


def _files(request: TrainRequest) -> tuple[list[TaggedSentence], list[TaggedSentence], dict[str, Any]]:
    """Training and validation sentences, and the entry of config.json for held-out sentences."""
    train = list(chain.from_iterable(map(read_tagged, request.train)))
    if amount := parse_validation_size(request.valid):
        rest, valid = hold_out_examples(train, amount.of(len(train), "sentence"))
        held = {one.words for one in valid}
        kept = [one for one in rest if one.words not in held]
        if not kept:
            raise UserError(
                f"--valid {amount.text}: all other sentences are duplicates of these; name a validation file"
            )
        return kept, valid, {"held_out": {"taken": len(valid), "dropped": len(rest) - len(kept)}}
    tags, valid = count_tags(train, ", ".join(request.train)), list[TaggedSentence]()
    for path in request.valid:
        found = read_tagged(path)
        check_tags(found, [*tags], path)
        valid += found
    return train, valid, {}


def _key(sentences: Sequence[TaggedSentence], reader: TextReader) -> str:
    return short_hash(reader.tokenizer.fingerprint, [astuple(one)[:2] for one in sentences])
