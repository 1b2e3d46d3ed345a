"""Vectors of texts, learnt by a published encoder from texts that belong together.

Of a batch each first text is to be nearer to its own second text than to all others (in-batch negatives,
arXiv:1705.00652, section 4.4): cross-entropy over cosines times 20, as sentence-transformers'
`MultipleNegativesRankingLoss` has it. A text that stands in a batch twice is no negative of itself. What comes out is a
folder of sentence-transformers. Not here: pooling and what comes behind it (`headwise.generation.embed`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.checkpoint.embedder import EmbedderLayout
from headwise.config.settings import RunConfig
from headwise.data.contrastive import ContrastiveBatch, ContrastiveDataset, Texts, read_contrastive
from headwise.data.file_hashes import short_hash
from headwise.data.labelled import hold_out_examples
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.split import parse_validation_size
from headwise.data.stream import EndlessStream
from headwise.errors import UserError
from headwise.evaluate.retrieval import retrieval_report
from headwise.generation.embed import POOLINGS, unit
from headwise.generation.sentences import SentenceSettings
from headwise.generation.vectors import TextEmbedder, numbered, vectors
from headwise.models.classifier import Classifier
from headwise.models.encoder import EncoderModel
from headwise.network.transformer import EncoderOnly
from headwise.tasks.automatic import decided
from headwise.tasks.classification import check_length
from headwise.tasks.from_scratch import encoder_from_scratch
from headwise.tasks.heads import ENCODERS, about_run, headed, with_head
from headwise.tasks.job import FolderLayout, TrainRequest, notify
from headwise.tasks.pretrained import FineTuning
from headwise.training.loss import Loss, at_least_float32
from headwise.training.packed import packed_states_of
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard

SCALE = 20.0  # of cosines, sentence-transformers'


@dataclass(frozen=True)
class EmbeddingJob:
    """See `headwise.tasks.job.Job`."""

    config: RunConfig
    tokenizer: PairTokenizer | None
    about: dict[str, Any]
    train: ContrastiveDataset
    valid: ContrastiveDataset
    embedder: TextEmbedder
    make: Callable[[], EncoderOnly]
    layout: FolderLayout
    signature: str = field(default="", init=False)
    baseline: Mapping[str, float] = field(default_factory=dict, init=False)

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        encode: Any = network.encode if self.config.train.compile else packed_states_of(network)
        return lambda batch: related_loss(encode, self.embedder.settings, batch)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[ContrastiveBatch]:
        return self.train.stream(self.config.train.tokens_per_batch, self.config.train.seed, state, pin)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The loss of each batch, and the vectors of all texts."""
        encoder: Any = network
        embedder, lines = replace(self.embedder, network=encoder), self.valid.lines
        queries, (others, _) = [line[0] for line in lines], numbered([line[1] for line in lines])
        with torch.inference_mode():
            batches = (batch.to(device) for batch in shard.of(self.valid.batches(self.config.train.tokens_per_batch)))
            losses = [related_loss(encoder.encode, embedder.settings, batch).objective.item() for batch in batches]
        found, among = (vectors(embedder, [*shard.of(texts)]).tolist() for texts in (queries, others))
        return {"loss": losses, "query": found, "other": among}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """The loss within batches, and how often a text finds its own among all."""
        lines = self.valid.lines
        found, among = (np.array(outputs[which], dtype=np.float32) for which in ("query", "other"))
        report = retrieval_report(found, among, numbered([line[1] for line in lines])[1])
        return {"loss": sum(outputs["loss"]) / len(lines), "accuracy": report.accuracy, "mrr": report.mrr}


def related_loss(encode: Callable[..., Tensor], settings: SentenceSettings, batch: ContrastiveBatch) -> Loss:
    """That of a batch, in nats, summed over its lines, and how many first texts are nearest to their own."""
    hidden = at_least_float32(encode(batch.src, batch.src_mask))
    vectors = torch.cat([POOLINGS[name](hidden, batch.src_mask) for name in settings.poolings], -1)
    for step in settings.steps:
        vectors = step(vectors)
    return contrastive_loss(vectors[: batch.n_targets], vectors[batch.n_targets :], batch.same)


def contrastive_loss(
    queries: Float[Tensor, "lines width"], others: Float[Tensor, "others width"], same: Bool[Tensor, "lines others"]
) -> Loss:
    """Cross-entropy over 20 times the cosines; the other of line i is the i-th.

    `same`: which of the others are word for word that of a line, and so no negatives of it.
    """
    own = torch.arange(len(queries), device=queries.device)
    scores = SCALE * unit(queries) @ unit(others).T
    twice = same.clone()
    twice[own, own] = False
    scores = scores.masked_fill(twice, -torch.inf)
    right = (scores.argmax(1) == own).sum()
    return Loss(F.cross_entropy(scores, own, reduction="sum"), {"accuracy": right.float()})


def tuned_embedding_job(request: TrainRequest, config: RunConfig, folder: Path) -> EmbeddingJob:
    """Read, check and tokenise the data that a pretrained encoder is fine-tuned on."""
    check_length(config)
    base: EncoderModel = FINE_TUNING.read(request.init)
    model, settings = with_head(base, "none", []), base.embedder.settings
    if not settings.pool_prompt:
        raise UserError(f"--init {request.init}: its vectors leave its prompt out of the pooling, which is not learnt")
    longest = min(filter(None, (base.embedder.longest, config.data.max_length)))
    embedder = replace(base.embedder, longest=longest)
    train, valid, held = _files(request)
    notify(request, f"training on {len(train):,} lines of {len(train[0])} texts, validating on {len(valid):,}")
    training, validating = (
        ContrastiveDataset(lines, _ids(embedder, lines), embedder.pad_id) for lines in (train, valid)
    )
    origin = model.reader.tokenizer.fingerprint
    keys = {"key": short_hash(origin, train), "valid_key": short_hash(origin, valid)}
    amount, corpus = f"{len(train):,} lines of texts", {"lines": len(train), **keys}
    about = about_run(request, model, config.model.dropout, amount, corpus, held)

    def make() -> EncoderOnly:
        return headed(base, model, {}, config.model.dropout)

    config = replace(config, train=replace(config.train, precision=decided(request, config, folder).precision))
    layout = EmbedderLayout(model, longest)
    return EmbeddingJob(config, model.reader.tokenizer, about, training, validating, embedder, make, layout)


def _texts(request: TrainRequest) -> Iterator[str]:
    return chain.from_iterable(read_contrastive(request.train))


embedding_job = partial(encoder_from_scratch, tuned_embedding_job, _texts)
FINE_TUNING = FineTuning(tuned_embedding_job, (EncoderModel, Classifier), ENCODERS, "max_length")


def _files(request: TrainRequest) -> tuple[list[Texts], list[Texts], dict[str, Any]]:
    """Lines to train and to validate on, and what config.json says of a part held out."""
    train = read_contrastive(request.train)
    amount = parse_validation_size(request.valid)
    if not amount:
        valid = read_contrastive(request.valid)
        return train, valid, {}
    rest, valid = hold_out_examples(train, amount.of(len(train)))
    there = {text for line in valid for text in line[:2]}
    kept = [line for line in rest if not there & {*line[:2]}]
    if not kept:
        raise UserError(f"--valid {amount.text}: every other line shares a text with these; name a file to validate on")
    return kept, valid, {"held_out": {"taken": len(valid), "dropped": len(rest) - len(kept)}}


def _ids(embedder: TextEmbedder, lines: Sequence[Texts]) -> list[list[list[int]]]:
    """Of every text, as `embed` reads it."""
    read = iter(embedder.ids([text for line in lines for text in line]))
    return [[next(read) for _ in line] for line in lines]
