"""Training extractive question answering (SQuAD) with an encoder.

Targets are the start and the end of a question's first answer in each passage of its context, or the first token if the
answer is not in the passage (BERT, arXiv:1810.04805, sections 4.2 and 4.3). Deviation from `transformers`: padding is
masked, so that a loss does not depend on other rows of the batch. See `heads` for the head,
`headwise.text.files.questions` for files and `headwise.models.encoding.answer` for passages and prediction.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.loss import Loss, at_least_float32
from headwise.core.train import Objective
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.evaluate.answers import answer_report
from headwise.models.encoding.answer import Passage, answers_in, passage_logits, read_passages
from headwise.models.encoding.classifier import Classifier
from headwise.models.encoding.encoder import EncoderModel
from headwise.models.encoding.reading import TextReader
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.labelled import LabelledBatch, LabelledDataset, hold_out_examples
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.tasks.automatic import with_precision
from headwise.pytorch.tasks.classification import EncoderHeadJob, check_length
from headwise.pytorch.tasks.from_scratch import encoder_from_scratch
from headwise.pytorch.tasks.heads import (
    ENCODERS,
    describe_run,
    head_message,
    network_with_head,
    pretrained_head,
    with_head,
)
from headwise.pytorch.tasks.job import TrainRequest, notify
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs
from headwise.pytorch.training.packed import forward_of
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.text.files.questions import Question, read_questions
from headwise.text.files.split import parse_validation_size
from headwise.text.prepared.file_hashes import short_hash


@dataclass(frozen=True)
class AnsweringJob(EncoderHeadJob):
    """Answers to questions, as parts of passages."""

    reader: TextReader = field(kw_only=True)
    questions: Sequence[Question] = field(kw_only=True)  # of `valid`
    passages: Sequence[Passage] = field(kw_only=True)  # of these questions

    @property
    def baseline(self) -> dict[str, float]:
        """Loss of the uniform distribution over tokens; an exact match needs at least the right first token."""
        length = sum(map(len, self.train.rows)) / len(self.train)  # type: ignore[union-attr]
        return {"loss": math.log(length), "exact_match": 1 / length}

    def objective(self, network: nn.Module) -> Objective:
        return span_objective(network, self.config.train)

    @property
    def gold(self) -> list[list[str]]:
        """The texts of the right answers to each question; empty if its context has no answer."""
        return [[answer.text for answer in one.answers or ()] for one in self.questions]

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The predicted answer to each question, and the cross-entropy of its passages."""
        given = [(one.question, one.context) for one in self.questions]
        own = {question: number for number, question in enumerate(shard.of(range(len(given))))}
        rows = [row for row, one in enumerate(self.passages) if one.question in own]
        parts = [replace(self.passages[row], question=own[self.passages[row].question]) for row in rows]
        texts, losses = TorchEncoder(network, self.reader.tokenizer.pad_id), [0.0] * len(own)
        logits = passage_logits(texts, self.reader.typed, parts)
        for row, part, scores in zip(rows, parts, logits, strict=True):
            span = torch.tensor([self.valid.classes[row]])
            losses[part.question] += span_loss(torch.from_numpy(scores)[None], span).objective.item()
        answers = answers_in([given[question] for question in own], parts, logits, nothing=not all(self.gold))
        return {"loss": losses, "answer": [one.text for one in answers]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Cross-entropy per passage, and exact match and F1 of the answers."""
        report = answer_report(outputs["answer"], self.gold)
        loss = sum(outputs["loss"]) / len(self.passages)
        return {"loss": loss, "exact_match": report.exact_match, "f1": report.f1}


def span_objective(network: nn.Module, train: TrainConfig) -> Objective:
    """Mean of the cross-entropies of the first and the last token of the answer."""
    forward = forward_of(network, train.compile)

    def objective(batch: LabelledBatch) -> Loss:
        return span_loss(forward(batch), batch.labels, batch.src_mask)

    return objective


def span_loss(
    logits: Float[Tensor, "batch length 2"],
    spans: Int[Tensor, "batch 2"],
    mask: Bool[Tensor, "batch length"] | None = None,
) -> Loss:
    """The loss of passages in nats, and how many predicted spans are right; `mask` is False on padding."""
    logits = at_least_float32(logits)
    if mask is not None:
        logits = logits.masked_fill(~mask[..., None], -float("inf"))
    right = (logits.argmax(1) == spans).all(1).sum()
    return Loss(F.cross_entropy(logits, spans, reduction="sum") / 2, {"accuracy": right.float()})


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> AnsweringJob:
    """Read, check and tokenise the data that a pretrained encoder is fine-tuned on."""
    check_length(config)
    base: EncoderModel = FINE_TUNING.read(request.init)
    train, valid, held = _files(request)
    model = with_head(base, "span", [])
    reader = model.reader
    passages, checked = (_passages(reader, questions, config) for questions in (train, valid))
    without = sum(not one.answers for one in train)
    amount = f"{len(train):,} questions in {len(passages):,} passages"
    notify(request, f"training on {amount}" + (f", {without:,} without an answer" if without else ""))
    known = pretrained_head(base, model)
    notify(request, head_message(base, "answer spans", known))
    corpus = {"questions": len(train), "key": _key(train, reader), "valid_key": _key(valid, reader)}
    about = describe_run(request, model, config.model.dropout, amount, corpus, held)

    def make() -> EncoderOnly:
        return network_with_head(base, model, known, config.model.dropout)

    config = with_precision(request, config, folder)
    training, validating = (_read(*one, reader) for one in ((train, passages), (valid, checked)))
    return AnsweringJob(
        config, reader.tokenizer, about, training, validating, layout=SameLayout(model), make=make,
        reader=reader, questions=valid, passages=checked,
    )  # fmt: skip


def _texts(request: TrainRequest) -> Iterator[str]:
    """Every distinct context, and all questions."""
    questions = list(chain.from_iterable(map(read_questions, request.train)))
    yield from dict.fromkeys(one.context for one in questions)
    yield from (one.question for one in questions)


answering_job = partial(encoder_from_scratch, fine_tuning_job, _texts)
FINE_TUNING = FineTuning(fine_tuning_job, (EncoderModel, Classifier), ENCODERS, "max_length")
JOBS = TaskJobs(answering_job, FINE_TUNING)


def _files(request: TrainRequest) -> tuple[list[Question], list[Question], dict[str, Any]]:
    """Training and validation questions, and the entry of config.json if whole contexts were held out."""
    train = list(chain.from_iterable(map(read_questions, request.train)))
    if not (amount := parse_validation_size(request.valid)):
        return train, list(chain.from_iterable(map(read_questions, request.valid))), {}
    contexts = list(dict.fromkeys(one.context for one in train))
    share = amount.of(len(train), "question") / len(train)
    if len(contexts) < 2:
        raise UserError(f"--valid {amount.text}: all questions have the same context; name a validation file")
    _, held_out = hold_out_examples(contexts, min(len(contexts) - 1, max(1, round(share * len(contexts)))))
    held = {*held_out}
    valid = [one for one in train if one.context in held]
    return [one for one in train if one.context not in held], valid, {"held_out": {"taken": len(valid), "dropped": 0}}


def _passages(reader: TextReader, questions: Sequence[Question], config: RunConfig) -> list[Passage]:
    given = [(one.question, one.context) for one in questions]
    return read_passages(reader, given, config.data.max_length, config.data.overlap)


def _read(questions: Sequence[Question], passages: Sequence[Passage], reader: TextReader) -> LabelledDataset:
    """Passages with the first and the last token of their answers."""
    answers = [questions[one.question].answers for one in passages]
    spans = [
        list(one.tokens_of(found[0].start, found[0].end)) if found else [0, 0]
        for one, found in zip(passages, answers, strict=True)
    ]
    return LabelledDataset([one.read for one in passages], spans, (), reader.typed)


def _key(questions: Sequence[Question], reader: TextReader) -> str:
    return short_hash(reader.tokenizer.fingerprint, [astuple(one) for one in questions])
