"""A language model: running text in blocks, and after every token the next one.

From scratch by a recipe, or from a folder of GPT-2, LLaMA or one of their relatives (`--init`). Either way what comes
out is a folder in the layout of such a family, which every command and `transformers` reads: there is no other kind of
language model here. Not here: text to blocks (`data/documents.py`, `data/blocks.py`), and what such models are asked
(`generation`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.architectures.language import language_axes
from headwise.checkpoint.from_scratch import check_axes, text_layout
from headwise.checkpoint.trained import RUN
from headwise.checkpoint.tuned import SameLayout
from headwise.checkpoint.vocabulary import bare, fingerprint
from headwise.config.model import longest_sequence
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.blocks import BlockBatch, block_stream, validation_blocks
from headwise.data.documents import (
    DocumentTokenizer,
    PreparedText,
    document_tokenizer,
    prepare_documents,
    spool_files,
    train_document_tokenizer,
)
from headwise.data.split import parse_validation_size
from headwise.data.stream import EndlessStream
from headwise.errors import UserError
from headwise.models.encoder import EncoderModel
from headwise.models.language_model import LanguageModel
from headwise.network.build import build
from headwise.network.heads import CappedLanguageHead
from headwise.network.transformer import DecoderOnly
from headwise.tasks.job import FolderLayout, TrainRequest, base_names, choose_tokenizer, notify
from headwise.tasks.pretrained import FineTuning, more_dropout, trainable
from headwise.training.loss import Loss, at_least_float32, sequence_loss
from headwise.training.step import Objective, projection
from headwise.training.validation import Outputs, Shard

Decode = Callable[[Tensor], Tensor]  # from tokens (blocks, length) to hidden states, those that `DecoderOnly` has


@dataclass(frozen=True)
class LanguageJob:
    """See `headwise.tasks.job.Job`."""

    config: RunConfig
    tokenizer: Any  # for the layout; a published model's stays as its files have it
    about: dict[str, Any]
    train: PreparedText
    valid: PreparedText
    layout: FolderLayout
    make: Callable[[], Any]
    signature: str = ""

    @property
    def baseline(self) -> dict[str, float]:
        """Of all tokens being equally likely, and of always choosing the most frequent one."""
        most_frequent = int(np.bincount(self.valid.tokens).max())
        return {"loss": math.log(self.config.model.vocab_size), "accuracy": most_frequent / len(self.valid)}

    def network(self) -> nn.Module:
        return self.make()

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, DecoderOnly)
        return language_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[BlockBatch]:
        train = self.config.train
        sizes = self.config.data.block_length, train.tokens_per_batch, train.seed
        return block_stream(self.train.tokens, *sizes, state, pin)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The log-likelihood of blocks of the validation text."""
        assert isinstance(network, DecoderOnly)
        sizes = self.config.data.block_length, self.config.train.tokens_per_batch
        batches = (batch.to(device) for batch in shard.of(validation_blocks(self.valid.tokens, *sizes)))
        return {"nll": [block_loss(network, network.decode, batch).nll.item() for batch in batches]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood of a token, in nats, over the whole validation text in blocks."""
        loss = sum(outputs["nll"]) / (len(self.valid) - 1)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


def language_objective(network: DecoderOnly, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of every token of a block but the first, given those before it."""
    decode: Decode = torch.compile(network.decode) if train.compile else network.decode
    return lambda batch: block_loss(network, decode, batch, train.label_smoothing)


def block_loss(network: DecoderOnly, decode: Decode, batch: BlockBatch, label_smoothing: float = 0.0) -> Loss:
    """Loss of predicting the token after each that is read, summed, in nats."""
    hidden, targets = decode(batch.tgt_in).flatten(0, 1), batch.tgt_out.flatten()
    if isinstance(network.head, CappedLanguageHead):
        return loss_of_logits(network.head(hidden), targets, label_smoothing)
    weight, bias, scale = projection(network)
    return sequence_loss(
        (hidden if scale == 1.0 else hidden * scale)[None], weight, targets, label_smoothing, bias=bias
    )


def loss_of_logits(logits: Float[Tensor, "rows vocab"], targets: Int[Tensor, " rows"], label_smoothing: float) -> Loss:
    """The same from logits, where they are more than a product with a matrix."""
    nll = objective = F.cross_entropy(at_least_float32(logits), targets, reduction="sum")
    if label_smoothing:
        objective = F.cross_entropy(at_least_float32(logits), targets, reduction="sum", label_smoothing=label_smoothing)
    return Loss(objective, {"nll": nll.detach()})


# --- What it is made of


def language_job(request: TrainRequest, config: RunConfig, folder: Path) -> LanguageJob:
    """Read, tokenise and check everything that a language model is trained on from scratch."""
    length = positions_of(config)
    check_axes(language_axes(replace(config.model, vocab_size=1), length))
    request = once_readable(request)
    tokenizer = choose_tokenizer(
        request, config, folder, lambda: train_document_tokenizer(request.train, config.data, request.special)
    )
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
    axes = language_axes(model, length)
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    config, layout = replace(config, model=model), text_layout(axes, length, tokenizer)
    return LanguageJob(config, tokenizer, about, train, valid, layout, lambda: build(axes))


def positions_of(config: RunConfig) -> int:
    """As many as a block is long; `UserError` where another number is asked for."""
    length, asked = config.data.block_length, config.model.max_len
    if config.model.positions == "learned" and asked not in (type(config.model)().max_len, length):
        raise UserError(
            f"model.max_len = {asked}: a language model has as many positions as data.block_length = {length}; leave "
            "it out"
        )
    return length


def tuned_job(request: TrainRequest, config: RunConfig, folder: Path) -> LanguageJob:
    """The same for a pretrained model that is fine-tuned."""
    check_tuned(request, config)
    model: LanguageModel = FINE_TUNING.read(request.init)
    about, train, valid = own_texts(request, config, own_cutter(model))
    about["network"] = language_model_rows(model)

    def make() -> DecoderOnly:
        dropout = config.model.dropout
        return trainable(model.network, dropout, more_dropout(model.hf_config, dropout))

    return LanguageJob(config, model.tokenizer, about, train, valid, SameLayout(model), make)


FINE_TUNING = FineTuning(
    tuned_job, LanguageModel, "a decoder alone (GPT-2, LLaMA)", "block_length", heads=("language",)
)


def check_tuned(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for what does not go with a model that has a vocabulary and a length of its own."""
    if request.source_language or request.target_language:
        raise UserError("--source-language and --target-language are for models that translate")
    limit = longest_sequence(config.model)
    if limit and config.data.block_length > limit:
        raise UserError(f"data.block_length = {config.data.block_length}: {request.init} reads {limit} tokens at most")


def own_texts(
    request: TrainRequest, config: RunConfig, cutter: DocumentTokenizer
) -> tuple[dict[str, Any], PreparedText, PreparedText]:
    """`prepared_texts` by the vocabulary of the model to start from."""
    try:
        return prepared_texts(once_readable(request), config, cutter)
    except UserError as error:
        raise UserError(str(error).replace("the tokenizer gives", f"{request.init}: the tokenizer gives")) from None


def own_cutter(model: LanguageModel) -> DocumentTokenizer:
    """By a published model's vocabulary: with the marks that it puts around a text, and an end mark behind them all."""
    (encode, before, behind), ends = (
        bare(model.tokenizer),
        [model.generation.special.eos_id] if model.generation.can_end else [],
    )
    return DocumentTokenizer(
        lambda texts: [encode(text) for text in texts],
        before,
        behind if behind[-1:] == ends else [*behind, *ends],
        fingerprint(model.path),
        model.config.vocab_size,
    )


def once_readable(request: TrainRequest) -> TrainRequest:
    """With files that can be read again and again."""
    valid = request.valid if parse_validation_size(request.valid) else spool_files(request.valid)
    return replace(request, train=spool_files(request.train), valid=valid)


def prepared_texts(
    request: TrainRequest, config: RunConfig, cutter: DocumentTokenizer
) -> tuple[dict[str, Any], PreparedText, PreparedText]:
    """What config.json says of the texts; those to train and those to validate on."""
    train, held = prepare_documents(request.train, cutter, progress=request.show), {}
    if amount := parse_validation_size(request.valid):
        if amount.pairs:
            raise UserError(f"--valid {amount.text}: running text has no pairs; hold out a share of it, such as 1%")
        train, valid = train.hold_out(amount.share)
        held = {"held_out": {"taken": len(valid), "dropped": 0}}
        notify(request, f"validating on the last {len(valid):,} tokens of the training files ({amount.text})")
    else:
        valid = prepare_documents(request.valid, cutter, progress=request.show)
    _check_sizes(request, config, train, valid)
    notify(
        request,
        f"training on {len(train):,} tokens of {train.characters:,} characters in {train.documents:,} documents",
    )
    corpus = {
        "train": base_names(request.train),
        "valid": base_names(request.train if held else request.valid),
        "tokens": len(train),
        "key": train.key,
        "valid_key": valid.key,
        **held,
    }
    return {"corpus": corpus, "material": _material(request, config, cutter, train), "settings": RUN}, train, valid


def _material(
    request: TrainRequest, config: RunConfig, cutter: DocumentTokenizer, train: PreparedText
) -> dict[str, str]:
    """What the model card says of it."""
    kind = f"{config.data.subword} pieces" if config.data.subword != "characters" else "characters"
    blocks = f"in blocks of {config.data.block_length:,}"
    data = f"{', '.join(base_names(request.train))}: {len(train):,} tokens, {blocks}"
    return {"vocabulary": f"{cutter.vocab_size:,} {kind}", "training data": data}


def _check_sizes(request: TrainRequest, config: RunConfig, train: PreparedText, valid: PreparedText) -> None:
    length = config.data.block_length
    if len(train) <= length:
        raise UserError(
            f"{', '.join(request.train)}: {len(train):,} tokens, and a block of data.block_length = {length} needs one "
            "more than it is long: give more text or lower it"
        )
    if len(valid) < 2:
        raise UserError(
            f"--valid {' '.join(request.valid)}: {len(valid)} tokens, and the first is not predicted: take more"
        )


def language_model_rows(model: LanguageModel | EncoderModel) -> dict[str, str]:
    """What the model card says of the network."""
    config, stack = model.config, model.config.decoder or model.config.encoder
    assert stack
    more = more_dropout(model.hf_config, 0.0)
    rates = ", ".join(f"{name} {rate}" for name, rate in vars(more).items() if rate)
    shape = f"d_model {stack.d_model}, d_ff {stack.d_ff}, {stack.n_heads} heads"
    return {
        "architecture": f"{config.family}: {stack.n_layers} layer{'s' * (stack.n_layers > 1)}, {shape}",
        "vocabulary": f"{config.vocab_size:,} pieces of `{model.path.absolute().name}`",
        **({"dropout": f"beside model.dropout: {rates}"} if rates else {}),
    }
