"""A masked language model (BERT, RoBERTa): running text in blocks, and what stood where some of it is hidden.

From scratch by a recipe, or from a folder of BERT or one of its relatives that has the head for it (`--init`). What
comes out is a folder in the layout of such a family, which every command and `transformers` reads. Texts, what is
refused and what a run says of itself are those of a language model (`language_modelling`). Not here: what is hidden
(`data/masking.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import processors
from torch import nn

from headwise.architectures.language import masked_axes
from headwise.checkpoint.from_scratch import check_axes, text_layout
from headwise.checkpoint.tuned import SameLayout
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.documents import document_tokenizer, train_document_tokenizer
from headwise.data.masking import MaskedBatch, MaskedText, Masking, mask_id, word_edges
from headwise.data.stream import EndlessStream
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError
from headwise.generation.fill import hidden_logits, predict_masked
from headwise.models.encoder import EncoderModel
from headwise.network.build import build
from headwise.network.transformer import EncoderOnly
from headwise.tasks.job import TrainRequest, choose_tokenizer
from headwise.tasks.language_modelling import (
    LanguageJob,
    check_tuned,
    language_model_rows,
    loss_of_logits,
    once_readable,
    own_texts,
    positions_of,
    prepared_texts,
)
from headwise.tasks.pretrained import FineTuning, more_dropout, trainable
from headwise.training.loss import Loss
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard, mean_over_shards

MARKS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")  # BERT's, in the order of a tokenizer of ours

AROUND = "{first} $A {last}", "{first}:0 $A:0 {last}:0 $B:1 {last}:1"  # a text, and two


@dataclass(frozen=True)
class MaskedJob(LanguageJob):
    """See `headwise.tasks.job.Job`."""

    hidden: Callable[[NDArray[np.int32]], MaskedText] = field(kw_only=True)  # of tokens, some of which are to be told

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, EncoderOnly)
        return masked_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[MaskedBatch]:  # pyright: ignore
        train = self.config.train
        return self.hidden(self.train.tokens).stream(train.tokens_per_batch, train.seed, state, pin)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """Of each batch the log-likelihood of what is hidden, how much of it is predicted right, and how much it is.

        What is hidden of the validation text is always the same.
        """
        assert isinstance(network, EncoderOnly)
        batches = self.hidden(self.valid.tokens).fixed(self.config.train.tokens_per_batch)
        found = [predict_masked(network, [batch]) for batch in shard.of(batches)]
        return {
            "nll": [-log_prob for log_prob, *_ in found],
            "right": [right for _, right, _ in found],
            "hidden": [hidden for *_, hidden in found],
        }

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood, in nats, and accuracy of a hidden token."""
        return {
            "loss": mean_over_shards(outputs, "nll", "hidden"),
            "accuracy": mean_over_shards(outputs, "right", "hidden"),
        }


def masked_objective(network: EncoderOnly, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of what is hidden, given the rest of its block."""
    encode = torch.compile(network.encode) if train.compile else network.encode

    def objective(batch: MaskedBatch) -> Loss:
        logits = hidden_logits(encode, network.logits, batch)
        loss = loss_of_logits(logits, batch.targets, train.label_smoothing)
        right = (logits.detach().argmax(-1) == batch.targets).sum()
        return replace(loss, figures={**loss.figures, "accuracy": right.to(loss.nll.dtype)})

    return objective


# --- What it is made of


def masked_job(request: TrainRequest, config: RunConfig, folder: Path) -> MaskedJob:
    """Read, tokenise and check everything that a masked language model is trained on from scratch."""
    length = positions_of(config)
    check_axes(masked_axes(replace(config.model, vocab_size=1), length))
    check_block_room(config, 2)
    request = once_readable(request)
    tokenizer = marked_tokenizer(request, config, folder)
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
    axes = masked_axes(model, length)
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    config, layout = replace(config, model=model), text_layout(axes, length, tokenizer)
    before, behind = [tokenizer.bos_id], [tokenizer.eos_id]
    hidden = partial(MaskedText, length=length, prefix=before, suffix=behind, masking=masking_of(tokenizer, config))
    return MaskedJob(config, tokenizer, about, train, valid, layout, lambda: build(axes), hidden=hidden)


def marked_tokenizer(
    request: TrainRequest,
    config: RunConfig,
    folder: Path,
    marks: Sequence[str] = MARKS,
    around: tuple[str, str] = AROUND,
) -> Tokenizer:
    """One that has a mask, and puts marks around a text, or two, where it is used."""

    def learn() -> Tokenizer:
        return train_document_tokenizer(request.train, config.data, request.special, marks)

    tokenizer = choose_tokenizer(request, config, folder, learn)
    return with_marks(tokenizer, config, around)


def with_marks(tokenizer: Tokenizer, config: RunConfig, around: tuple[str, str] = AROUND) -> Tokenizer:
    """The tokenizer itself, which puts marks around texts from now on; `UserError` if it has no mask."""
    try:
        mask_id(tokenizer)
    except UserError as error:
        raise UserError(f"data.tokenizer = {config.data.tokenizer}: {error}; leave it out, and one is learnt") from None
    found = [(tokenizer.piece(i), i) for i in (tokenizer.bos_id, tokenizer.eos_id)]
    one, two = (template.format(first=found[0][0], last=found[1][0]) for template in around)
    tokenizer.backend.post_processor = processors.TemplateProcessing(one, two, found)
    return tokenizer


def masking_of(tokenizer: Tokenizer, config: RunConfig) -> Masking:
    """What is hidden of a text in the pieces of a tokenizer of ours."""
    mask, ids = mask_id(tokenizer), range(tokenizer.vocab_size)
    pieces = np.array([i for i in ids if i != mask and not tokenizer.is_special(i)], np.int64)
    joints = word_edges(tokenizer.pieces(ids)) if config.data.whole_words else None
    return Masking(mask, pieces, config.data.mask_share, joints)


def tuned_masked_job(request: TrainRequest, config: RunConfig, folder: Path) -> MaskedJob:
    """The same for a pretrained model that is fine-tuned."""
    check_tuned(request, config)
    model: EncoderModel = FINE_TUNING.read(request.init)
    masking = model.masking(config.data.mask_share, config.data.whole_words)
    hidden = partial(model.hidden, length=config.data.block_length, masking=masking)
    check_block_room(config, config.data.block_length - hidden(np.array([], np.int32)).text_length)
    about, train, valid = own_texts(request, config, model.cutter)
    about["network"] = language_model_rows(model)

    def make() -> EncoderOnly:
        dropout = config.model.dropout
        return trainable(model.network, dropout, more_dropout(model.hf_config, dropout))

    return MaskedJob(config, model.tokenizer, about, train, valid, SameLayout(model), make, hidden=hidden)


FINE_TUNING = FineTuning(
    tuned_masked_job,
    EncoderModel,
    "an encoder that was saved with its head for what is masked (BERT, RoBERTa, DistilBERT)",
    "block_length",
    heads=("masked",),
)


def check_block_room(config: RunConfig, n_marks: int) -> None:
    """`UserError` where a block has no room for text beside its marks."""
    if config.data.block_length <= n_marks:
        raise UserError(
            f"data.block_length = {config.data.block_length}: {n_marks} tokens of a block are marks; raise it"
        )
