"""Training a published encoder-decoder further on pairs: with its own vocabulary, dropout and search.

What is trained are copies of its weights in float32, whatever numbers its file has; a bias on the logits (Marian, BART)
stays as it is, as in `transformers`. What comes out is a folder in the layout it came in, with the files of its
tokenizer, and `training.json`, which says how. Objective, batches and trainer are those of a translator of ours.

Everything is dropped that the checkpoint's config.json has dropped (`network/more_dropout.py`), at its rates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.checkpoint.trained import RUN
from sightline.checkpoint.tuned import SameLayout
from sightline.config.settings import RunConfig
from sightline.data.rows import Pair
from sightline.models.rewriting import RewritingModel
from sightline.network.more_dropout import without
from sightline.tasks.comparing import before_and_after, in_chunks
from sightline.tasks.job import TrainRequest, say
from sightline.tasks.small_data import few_validation_pairs
from sightline.tasks.trainable import StartingPoint, more_dropout, trainable
from sightline.tasks.translation import TranslationJob, decided, prepare_both, read_files, report_batching
from sightline.training.validation import Outputs, Shard


@dataclass(frozen=True)
class PublishedJob(TranslationJob):
    """See `sightline.tasks.job.Job`."""

    model: RewritingModel = field(kw_only=True)

    def network(self) -> nn.Module:
        dropout = self.config.model.dropout
        return trainable(self.model.network, dropout, more_dropout(self.model.hf_config, dropout))

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """As of `TranslationJob`, and as fast as for a network without dropouts of its own."""
        with without(network):
            return super().outputs(network, device, shard)

    def translated(self, network: Any, pairs: Sequence[Pair]) -> Iterator[list[str]]:
        """Searched as the model's generation_config.json says."""
        return in_chunks(replace(self.model, network=network), [src for src, _ in pairs])


def published_job(request: TrainRequest, config: RunConfig, folder: Path) -> PublishedJob:
    """Read, tokenise and check everything a published model is trained further on."""
    model: RewritingModel = START.read(request.init).between(request.source_language, request.target_language)
    _, train, valid, held = read_files(request)
    tokenizer = model._translator.tokenizer
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "pairs")
    for warning in few_validation_pairs(len(validating)):
        say(request, warning)
    config = replace(config, train=decided(request, config, folder))
    report_batching(request, config)
    search = f"beam {model.generation.beam_size}, length penalty {model.generation.length_penalty}"
    about = {
        "corpus": {**corpus, **held},
        "network": network_rows(model, config.model.dropout),
        "search": search,
        "settings": RUN,
    }
    return PublishedJob(
        config, tokenizer, about, prepared, validating, None, request.init, None, request.show,
        SameLayout(model), model=model,
    )  # fmt: skip


START = StartingPoint(
    published_job, RewritingModel, "one that reads a text and writes another", "tune", "max_length", before_and_after
)


def network_rows(model: RewritingModel, dropout: float) -> dict[str, str]:
    """What the model card says of the network."""
    config, stack = model.config, model.config.encoder
    assert stack and config.decoder
    shape = f"{stack.n_layers} + {config.decoder.n_layers} layers, d_model {stack.d_model}, d_ff {stack.d_ff}"
    between = " to ".join(filter(None, (model.source_language, model.target_language)))
    more = more_dropout(model.hf_config, dropout)
    rates = ", ".join(f"{name} {rate}" for name, rate in vars(more).items() if rate)
    return {
        "architecture": f"{config.family}: {shape}, {stack.n_heads} heads, {stack.norm_position}-norm",
        "vocabulary": f"{config.tgt_vocab_size or config.vocab_size:,} pieces of `{model.path.absolute().name}`",
        **({"languages": between} if between else {}),
        **({"dropout": f"beside {dropout}: {rates}"} if rates else {}),
    }
