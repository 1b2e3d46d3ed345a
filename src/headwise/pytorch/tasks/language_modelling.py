"""Training causal language models on running text in blocks, from scratch or from a pretrained model (GPT-2, LLaMA).

The result is a folder in the Hugging Face layout of such a family. See `text/files/documents.py` and
`pytorch/data/blocks.py` for the way from text to blocks, and `generation` for generation.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config.model import longest_sequence
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.build import build
from headwise.core.heads import CappedLanguageHead
from headwise.core.loss import Loss, at_least_float32, sequence_loss
from headwise.core.train import Objective
from headwise.core.transformer import DecoderOnly
from headwise.errors import UserError
from headwise.evaluate.baselines import ORDER, Baseline, ngram_loss
from headwise.models.encoding.encoder import EncoderModel
from headwise.models.language.language_model import LanguageModel
from headwise.pytorch.architectures.hf_layouts import language_model_config
from headwise.pytorch.checkpoint.from_scratch import check_layout, text_layout
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.blocks import BlockBatch, block_stream, validation_blocks
from headwise.pytorch.data.stream import BatchShare, EndlessStream
from headwise.pytorch.tasks.job import Job, TrainRequest, base_names, choose_tokenizer, notify
from headwise.pytorch.tasks.pretrained import (
    FineTuning,
    TaskJobs,
    dropout_row,
    extra_dropout_rates,
    stack_rows,
    trainable_network,
)
from headwise.pytorch.training.step import projection
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.checkpoint.trained import RUN
from headwise.text.files.documents import (
    DocumentTokenizer,
    PreparedText,
    document_tokenizer,
    prepare_documents,
    spool_files,
    train_document_tokenizer,
)
from headwise.text.files.split import parse_validation_size

Decode = Callable[[Tensor], Tensor]  # `DecoderOnly.decode`: tokens (blocks, length) to hidden states


@dataclass(frozen=True)
class LanguageJob(Job):
    """The next token of running text."""

    train: PreparedText
    valid: PreparedText
    make: Callable[[], Any]

    @property
    def baseline(self) -> dict[str, float]:
        """Loss of the uniform distribution, and accuracy of the most frequent token."""
        most_frequent = int(np.bincount(self.valid.tokens).max())
        return {"loss": math.log(self.config.model.vocab_size), "accuracy": most_frequent / len(self.valid)}

    def simple_baseline(self) -> Baseline | None:
        """N-grams of tokens."""
        loss = ngram_loss(self.train.tokens, self.valid.tokens, self.config.model.vocab_size)
        figures = {"loss": loss, "perplexity": math.exp(loss)}
        return Baseline(f"{ORDER}-grams of tokens", figures, "more steps (train.max_steps) or more text would help")

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, DecoderOnly)
        return language_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[BlockBatch]:
        train = self.config.train
        sizes = self.config.data.block_length, train.tokens_per_batch, train.seed
        return block_stream(self.train.tokens, *sizes, state, share)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The negative log-likelihood of each batch of validation blocks."""
        assert isinstance(network, DecoderOnly)
        sizes = self.config.data.block_length, self.config.train.tokens_per_batch
        batches = (batch.to(device) for batch in shard.of(validation_blocks(self.valid.tokens, *sizes)))
        return {"nll": [block_loss(network, network.decode, batch).nll.item() for batch in batches]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood of a token, in nats, over the validation text, and perplexity."""
        loss = sum(outputs["nll"]) / (len(self.valid) - 1)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


@dataclass(frozen=True)
class NoisedTextJob(LanguageJob):
    """A job on blocks of running text in which tokens are masked, corrupted or reordered."""

    blocks: Callable[[PreparedText], Any] = field(kw_only=True)  # such as `MaskedText`

    def simple_baseline(self) -> None:
        """N-grams do not restore noisy text."""
        return None

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[Any]:
        train = self.config.train
        return self.blocks(self.train).stream(train.tokens_per_batch, train.seed, state, share)

    def validation_batches(self) -> Iterable[Any]:
        """Batches of the validation text, which always has the same noise."""
        return self.blocks(self.valid).fixed(self.config.train.tokens_per_batch)


def language_objective(network: DecoderOnly, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of each token of a block but the first, given those before it."""
    decode: Decode = torch.compile(network.decode) if train.compile else network.decode
    return lambda batch: block_loss(network, decode, batch, train.label_smoothing)


def block_loss(network: DecoderOnly, decode: Decode, batch: BlockBatch, label_smoothing: float = 0.0) -> Loss:
    """Loss of the next tokens, summed, in nats."""
    hidden, targets = decode(batch.tgt_in).flatten(0, 1), batch.tgt_out.flatten()
    if isinstance(network.head, CappedLanguageHead):
        return logits_loss(network.head(hidden), targets, label_smoothing)
    weight, bias, scale = projection(network)
    return sequence_loss(
        (hidden if scale == 1.0 else hidden * scale)[None], weight, targets, label_smoothing, bias=bias
    )


def logits_loss(logits: Float[Tensor, "rows vocab"], targets: Int[Tensor, " rows"], label_smoothing: float) -> Loss:
    """Loss of logits, for heads that are not a plain matrix product; summed, in nats."""
    nll = objective = F.cross_entropy(at_least_float32(logits), targets, reduction="sum")
    if label_smoothing:
        objective = F.cross_entropy(at_least_float32(logits), targets, reduction="sum", label_smoothing=label_smoothing)
    return Loss(objective, {"nll": nll.detach()})


def masked_loss(logits: Float[Tensor, "rows vocab"], targets: Int[Tensor, " rows"], label_smoothing: float) -> Loss:
    """`logits_loss` with the accuracy of predicted tokens."""
    loss = logits_loss(logits, targets, label_smoothing)
    right = (logits.detach().argmax(-1) == targets).sum()
    return replace(loss, figures={**loss.figures, "accuracy": right.to(loss.nll.dtype)})


def language_job(request: TrainRequest, config: RunConfig, folder: Path) -> LanguageJob:
    """Read, tokenise and check the data for training from scratch."""
    length = context_length(config)
    check_layout(language_model_config(replace(config.model, vocab_size=1), length))
    request = with_spooled_files(request)
    tokenizer = choose_tokenizer(
        request, config, folder, lambda: train_document_tokenizer(request.train, config.data, request.special)
    )
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
    axes = language_model_config(model, length)
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    config, layout = replace(config, model=model), text_layout(axes, length, tokenizer)
    return LanguageJob(config, tokenizer, about, train, valid, lambda: build(axes), layout=layout)


def context_length(config: RunConfig) -> int:
    """The number of positions, `data.block_length`; `UserError` if `model.max_len` differs."""
    length, requested = config.data.block_length, config.model.max_len
    if config.model.positions == "learned" and requested not in (type(config.model)().max_len, length):
        raise UserError(
            f"model.max_len = {requested}: a language model has data.block_length = {length} positions; leave it out"
        )
    return length


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> LanguageJob:
    """Read, tokenise and check the data for fine-tuning."""
    check_fine_tuning(request, config)
    model: LanguageModel = FINE_TUNING.read(request.init)
    about, train, valid = texts_for_model(request, config, model.cutter)
    about["network"] = language_model_rows(model)

    make = partial(trainable_network, model, config.model.dropout)
    return LanguageJob(config, model.tokenizer, about, train, valid, make, layout=SameLayout(model))


FINE_TUNING = FineTuning(
    fine_tuning_job, LanguageModel, "a decoder (GPT-2, LLaMA)", "block_length", heads=("language",)
)
JOBS = TaskJobs(language_job, FINE_TUNING)


def check_fine_tuning(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for options that do not fit a pretrained language model."""
    if request.source_language or request.target_language:
        raise UserError("--source-language and --target-language are for models that translate")
    limit = longest_sequence(config.model)
    if limit and config.data.block_length > limit:
        raise UserError(f"data.block_length = {config.data.block_length}: {request.init} reads at most {limit} tokens")


def texts_for_model(
    request: TrainRequest, config: RunConfig, tokenizer: DocumentTokenizer, by_line: bool = False
) -> tuple[dict[str, Any], PreparedText, PreparedText]:
    """`prepared_texts` with the tokenizer of the initial model."""
    try:
        return prepared_texts(with_spooled_files(request), config, tokenizer, by_line)
    except UserError as error:
        raise UserError(str(error).replace("the tokenizer gives", f"{request.init}: the tokenizer gives")) from None


def with_spooled_files(request: TrainRequest) -> TrainRequest:
    """The request with copies of files that can be read only once (pipes)."""
    valid = request.valid if parse_validation_size(request.valid) else spool_files(request.valid)
    return replace(request, train=spool_files(request.train), valid=valid)


def prepared_texts(
    request: TrainRequest, config: RunConfig, tokenizer: DocumentTokenizer, by_line: bool = False
) -> tuple[dict[str, Any], PreparedText, PreparedText]:
    """The entries for config.json, the training and the validation text; `by_line`: each line is a document."""
    train, held = prepare_documents(request.train, tokenizer, progress=request.show, by_line=by_line), {}
    if amount := parse_validation_size(request.valid):
        if amount.pairs:
            raise UserError(f"--valid {amount.text}: running text has no pairs; hold out a part of it, such as 1%")
        train, valid = train.hold_out(amount.share, by_line)
        held = {"held_out": {"taken": len(valid), "dropped": 0}}
        notify(request, f"validating on the last {len(valid):,} tokens of the training files ({amount.text})")
    else:
        valid = prepare_documents(request.valid, tokenizer, progress=request.show, by_line=by_line)
    _check_sizes(request, 0 if by_line else config.data.block_length, train, valid)
    parts = f"{train.documents:,} {'lines' if by_line else 'documents'}"
    notify(request, f"training on {len(train):,} tokens of {train.characters:,} characters in {parts}")
    corpus = {
        "train": base_names(request.train),
        "valid": base_names(request.train if held else request.valid),
        "tokens": len(train),
        "key": train.key,
        "valid_key": valid.key,
        **held,
    }
    kind = f"{config.data.subword} tokens" if config.data.subword != "characters" else "characters"
    cut = f"{parts}, each a sequence" if by_line else f"blocks of {config.data.block_length:,}"
    data = f"{', '.join(corpus['train'])}: {len(train):,} tokens, in {cut}"
    material = {"vocabulary": f"{tokenizer.vocab_size:,} {kind}", "training data": data}
    return {"corpus": corpus, "material": material, "settings": RUN}, train, valid


def _check_sizes(request: TrainRequest, length: int, train: PreparedText, valid: PreparedText) -> None:
    if len(train) <= length:
        raise UserError(
            f"{', '.join(request.train)}: {len(train):,} tokens, and a block of data.block_length = {length} needs "
            f"{length + 1:,}: add text or lower it"
        )
    if len(valid) < 2:
        raise UserError(
            f"--valid {' '.join(request.valid)}: {len(valid)} tokens, and the first is not predicted: take more"
        )


def language_model_rows(model: LanguageModel | EncoderModel) -> dict[str, str]:
    """The rows of the model card for the network."""
    config = model.config
    rows = stack_rows(model, config.family, config.decoder or config.encoder, config.vocab_size)
    return rows | dropout_row(extra_dropout_rates(model.hf_config, 0.0), "model.dropout")
