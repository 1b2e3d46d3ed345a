"""Training text embeddings with an encoder, on pairs of related texts.

The loss is cross-entropy over cosines times 20 with in-batch negatives (arXiv:1705.00652, section 4.4), the
`MultipleNegativesRankingLoss` of sentence-transformers. Duplicates within a batch are not negatives of each other. The
result is a folder of sentence-transformers. See `headwise.models.encoding.embed` for pooling and later steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config.settings import RunConfig
from headwise.core.loss import Loss, at_least_float32
from headwise.core.train import Objective
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.evaluate.retrieval import retrieval_report
from headwise.models.encoding.classifier import Classifier
from headwise.models.encoding.embed import unit
from headwise.models.encoding.encoder import EncoderModel
from headwise.models.encoding.sentences import SentenceSettings
from headwise.models.encoding.vectors import TextEmbedder, distinct_texts, embed_default, pad_id_of
from headwise.pytorch.checkpoint.embedder import EmbedderLayout
from headwise.pytorch.data.contrastive import ContrastiveBatch, ContrastiveDataset
from headwise.pytorch.data.labelled import hold_out_examples
from headwise.pytorch.data.stream import BatchShare, EndlessStream
from headwise.pytorch.models.text_pooling import pooled_vectors
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.tasks.automatic import with_precision
from headwise.pytorch.tasks.classification import check_length
from headwise.pytorch.tasks.from_scratch import encoder_from_scratch
from headwise.pytorch.tasks.heads import ENCODERS, describe_run, network_with_head, with_head
from headwise.pytorch.tasks.job import Job, TrainRequest, notify
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs
from headwise.pytorch.training.packed import states_of
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.text.files.contrastive_texts import Texts, read_contrastive
from headwise.text.files.split import parse_validation_size
from headwise.text.prepared.file_hashes import short_hash

SCALE = 20.0  # of cosines, as in sentence-transformers
DENSE: dict[str, Callable[[Tensor], Tensor]] = {  # activations of `models.encoding.embed`, with gradients
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
}


@dataclass(frozen=True)
class EmbeddingJob(Job):
    """Vectors for texts."""

    train: ContrastiveDataset
    valid: ContrastiveDataset
    embedder: TextEmbedder
    make: Callable[[], EncoderOnly]

    @property
    def baseline(self) -> dict[str, float]:
        """Retrieval of a random text."""
        n = len(distinct_texts([line[1] for line in self.valid.lines])[0])
        return {"accuracy": 1 / n, "mrr": sum(1 / rank for rank in range(1, n + 1)) / n}

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, EncoderOnly)
        states = states_of(network, self.config.train.compile)
        return lambda batch: embedding_loss(states(batch), self.embedder.settings, batch)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[ContrastiveBatch]:
        return self.train.stream(self.config.train.tokens_per_batch, self.config.train.seed, state, share)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The loss of each batch, and the embeddings of all texts."""
        encoder: Any = network
        embedder, lines = replace(self.embedder, network=TorchEncoder(network, self.valid.pad_id)), self.valid.lines
        queries, (others, _) = [line[0] for line in lines], distinct_texts([line[1] for line in lines])
        with torch.inference_mode():
            batches = (batch.to(device) for batch in shard.of(self.valid.batches(self.config.train.tokens_per_batch)))
            states = ((encoder.encode(*batch.inputs), batch) for batch in batches)
            losses = [embedding_loss(hidden, embedder.settings, batch).objective.item() for hidden, batch in states]
        query, other = (embed_default(embedder, [*shard.of(texts)]).tolist() for texts in (queries, others))
        return {"loss": losses, "query": query, "other": other}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """The loss within batches, and retrieval accuracy and MRR among all texts."""
        lines = self.valid.lines
        query, other = (np.array(outputs[which], dtype=np.float32) for which in ("query", "other"))
        report = retrieval_report(query, other, distinct_texts([line[1] for line in lines])[1])
        return {"loss": sum(outputs["loss"]) / len(lines), "accuracy": report.accuracy, "mrr": report.mrr}


def embedding_loss(
    hidden: Float[Tensor, "texts length d_model"], settings: SentenceSettings, batch: ContrastiveBatch
) -> Loss:
    """The loss of a batch in nats, summed over its lines, and how many lines are retrieved right."""
    vectors = pooled_vectors(at_least_float32(hidden), batch.src_mask, settings.poolings)
    for step in settings.steps:
        vectors = F.normalize(vectors, dim=-1) if step is unit else dense_with_gradients(step, vectors)
    return contrastive_loss(vectors[: batch.n_targets], vectors[batch.n_targets :], batch.same)


def dense_with_gradients(step: Any, vectors: Tensor) -> Tensor:
    """A `models.encoding.embed.Dense` with gradients of its input."""
    weight, bias = (None if x is None else torch.from_numpy(x).to(vectors.device) for x in (step.weight, step.bias))
    assert weight is not None
    return DENSE[step.activation](F.linear(vectors, weight, bias))


def contrastive_loss(
    queries: Float[Tensor, "lines width"], others: Float[Tensor, "others width"], same: Bool[Tensor, "lines others"]
) -> Loss:
    """Cross-entropy over 20 times the cosines; line i belongs to `others[i]`.

    `same`: which others are duplicates of the line's own, and so not negatives.
    """
    own = torch.arange(len(queries), device=queries.device)
    scores = SCALE * F.normalize(queries, dim=-1) @ F.normalize(others, dim=-1).T
    duplicates = same.clone()
    duplicates[own, own] = False
    scores = scores.masked_fill(duplicates, -torch.inf)
    right = (scores.argmax(1) == own).sum()
    return Loss(F.cross_entropy(scores, own, reduction="sum"), {"accuracy": right.float()})


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> EmbeddingJob:
    """Read, check and tokenise the data that a pretrained encoder is fine-tuned on."""
    check_length(config)
    base: EncoderModel = FINE_TUNING.read(request.init)
    model, settings = with_head(base, "none", []), base.embedder.settings
    if not settings.pool_prompt:
        raise UserError(f"--init {request.init}: excludes its prompt from the pooling, which training does not support")
    longest = min(filter(None, (base.embedder.longest, config.data.max_length)))
    embedder = replace(base.embedder, longest=longest)
    train, valid, held = _files(request)
    notify(request, f"training on {len(train):,} lines of {len(train[0])} texts, validating on {len(valid):,}")
    training, validating = (
        ContrastiveDataset(lines, _ids(embedder, lines), pad_id_of(base.hf_config)) for lines in (train, valid)
    )
    origin = model.reader.tokenizer.fingerprint
    keys = {"key": short_hash(origin, train), "valid_key": short_hash(origin, valid)}
    amount, corpus = f"{len(train):,} lines of texts", {"lines": len(train), **keys}
    about = describe_run(request, model, config.model.dropout, amount, corpus, held)

    def make() -> EncoderOnly:
        return network_with_head(base, model, {}, config.model.dropout)

    config = with_precision(request, config, folder)
    layout = EmbedderLayout(model, longest)
    return EmbeddingJob(config, model.reader.tokenizer, about, training, validating, embedder, make, layout=layout)


def _texts(request: TrainRequest) -> Iterator[str]:
    return chain.from_iterable(read_contrastive(request.train))


embedding_job = partial(encoder_from_scratch, fine_tuning_job, _texts)
FINE_TUNING = FineTuning(fine_tuning_job, (EncoderModel, Classifier), ENCODERS, "max_length")
JOBS = TaskJobs(embedding_job, FINE_TUNING)


def _files(request: TrainRequest) -> tuple[list[Texts], list[Texts], dict[str, Any]]:
    """Training and validation lines, and the entry of config.json for held-out lines."""
    train = read_contrastive(request.train)
    amount = parse_validation_size(request.valid)
    if not amount:
        valid = read_contrastive(request.valid)
        return train, valid, {}
    rest, valid = hold_out_examples(train, amount.of(len(train), "line"))
    held = {text for line in valid for text in line[:2]}
    kept = [line for line in rest if not held & {*line[:2]}]
    if not kept:
        raise UserError(f"--valid {amount.text}: all other lines share a text with these; name a validation file")
    return kept, valid, {"held_out": {"taken": len(valid), "dropped": len(rest) - len(kept)}}


def _ids(embedder: TextEmbedder, lines: Sequence[Texts]) -> list[list[list[int]]]:
    """The ids of every text, as for `embed`."""
    read = iter(embedder.ids([text for line in lines for text in line]))
    return [[next(read) for _ in line] for line in lines]
