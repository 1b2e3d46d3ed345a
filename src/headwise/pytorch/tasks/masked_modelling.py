"""Training masked language models (BERT, RoBERTa) on running text, from scratch or from a model with the head for it.

The result is a folder in the Hugging Face layout. Texts and checks are those of `language_modelling`. See
`text/prepared/masking.py` for masking.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import processors
from torch import nn

from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.build import build
from headwise.core.loss import Loss
from headwise.core.train import Objective
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.models.encoding.encoder import MaskedModel
from headwise.pytorch.architectures.hf_layouts import masked_lm_config
from headwise.pytorch.checkpoint.from_scratch import check_layout, text_layout
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.masked_sequences import MaskedBatch, MaskedLineBatch, masked_sequences
from headwise.pytorch.models.encoder import masked_for
from headwise.pytorch.search.masks import masked_logits, score_masks
from headwise.pytorch.tasks.job import TrainRequest, choose_tokenizer, notify
from headwise.pytorch.tasks.language_modelling import (
    NoisedTextJob,
    check_fine_tuning,
    context_length,
    language_model_rows,
    masked_loss,
    prepared_texts,
    texts_for_model,
    with_spooled_files,
)
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs, trainable_network
from headwise.pytorch.training.validation import Outputs, Shard, mean_over_shards
from headwise.text.files.documents import DocumentTokenizer, document_tokenizer, train_document_tokenizer
from headwise.text.files.lines import BLOCKS, LINES, choose_reading
from headwise.text.prepared.masking import Masking, mask_id, word_edges
from headwise.text.tokens.tokenizer import Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")  # BERT's, in the order of `Tokenizer`
TEMPLATES = "{first} $A {last}", "{first}:0 $A:0 {last}:0 $B:1 {last}:1"  # for a text, and for a pair


@dataclass(frozen=True)
class MaskedJob(NoisedTextJob):
    """Masked tokens of running text."""

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, EncoderOnly)
        return masked_objective(network, self.config.train)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """For each batch the log-likelihood of masked tokens, how many are predicted right, and their number."""
        assert isinstance(network, EncoderOnly)
        scores = [score_masks(network, [batch]) for batch in shard.of(self.validation_batches())]
        return {
            "nll": [-log_prob for log_prob, *_ in scores],
            "right": [right for _, right, _ in scores],
            "targets": [masked for *_, masked in scores],
        }

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood, in nats, and accuracy of predicted tokens."""
        return {
            "loss": mean_over_shards(outputs, "nll", "targets"),
            "accuracy": mean_over_shards(outputs, "right", "targets"),
        }


def masked_objective(network: EncoderOnly, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of masked tokens."""
    encode = torch.compile(network.encode) if train.compile else network.encode

    def objective(batch: MaskedBatch | MaskedLineBatch) -> Loss:
        return masked_loss(masked_logits(encode, network.logits, batch), batch.targets, train.label_smoothing)

    return objective


def masked_job(request: TrainRequest, config: RunConfig, folder: Path) -> MaskedJob:
    """Read, tokenise and check the data for training from scratch."""
    length = context_length(config)
    check_layout(masked_lm_config(replace(config.model, vocab_size=1), length))
    check_block_room(config, 2)
    request = with_spooled_files(request)
    tokenizer = tokenizer_with_template(request, config, folder)
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id, max_len=length)
    axes = masked_lm_config(model, length)
    around = [tokenizer.bos_id], [tokenizer.eos_id]
    by_line, cutter = _reading(request, config, document_tokenizer(tokenizer), around)
    about, train, valid = prepared_texts(request, config, cutter, by_line)
    about["corpus"]["reading"] = LINES if by_line else BLOCKS
    config, layout = replace(config, model=model), text_layout(axes, length, tokenizer)
    masked = partial(
        masked_sequences,
        length=length,
        around=around,
        masking=masking_for(tokenizer, config),
        by_line=by_line,
        pad_id=tokenizer.pad_id,
    )
    return MaskedJob(config, tokenizer, about, train, valid, lambda: build(axes), layout=layout, blocks=masked)


def tokenizer_with_template(
    request: TrainRequest,
    config: RunConfig,
    folder: Path,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    templates: tuple[str, str] = TEMPLATES,
) -> Tokenizer:
    """The tokenizer of the run, with a mask token and templates of special tokens for a text and a pair."""

    def train() -> Tokenizer:
        return train_document_tokenizer(request.train, config.data, request.special, special_tokens)

    return add_template(choose_tokenizer(request, config, folder, train), config, templates)


def add_template(tokenizer: Tokenizer, config: RunConfig, templates: tuple[str, str] = TEMPLATES) -> Tokenizer:
    """Add templates of special tokens to the tokenizer and return it; `UserError` if it has no mask token."""
    try:
        mask_id(tokenizer)
    except UserError as error:
        raise UserError(
            f"data.tokenizer = {config.data.tokenizer}: {error}; leave it out to train a tokenizer"
        ) from None
    found = [(tokenizer.piece(i), i) for i in (tokenizer.bos_id, tokenizer.eos_id)]
    one, two = (template.format(first=found[0][0], last=found[1][0]) for template in templates)
    tokenizer.backend.post_processor = processors.TemplateProcessing(one, two, found)
    return tokenizer


def masking_for(tokenizer: Tokenizer, config: RunConfig) -> Masking:
    """The masking of texts with this tokenizer."""
    mask, ids = mask_id(tokenizer), range(tokenizer.vocab_size)
    replacements = np.array([i for i in ids if i != mask and not tokenizer.is_special(i)], np.int64)
    edges = word_edges(tokenizer.pieces(ids)) if config.data.whole_words else None
    return Masking(mask, replacements, config.data.mask_share, edges)


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> MaskedJob:
    """Read, tokenise and check the data for fine-tuning."""
    check_fine_tuning(request, config)
    model: MaskedModel = FINE_TUNING.read(request.init)
    request = with_spooled_files(request)
    check_block_room(config, sum(map(len, model.around)))
    by_line, cutter = _reading(request, config, model.cutter, model.around)
    masking = model.masking(config.data.mask_share, config.data.whole_words)
    masked = partial(masked_for, model, length=config.data.block_length, masking=masking, by_line=by_line)
    about, train, valid = texts_for_model(request, config, cutter, by_line)
    about["corpus"]["reading"] = LINES if by_line else BLOCKS
    about["network"] = language_model_rows(model)

    make = partial(trainable_network, model, config.model.dropout)
    return MaskedJob(config, model.tokenizer, about, train, valid, make, layout=SameLayout(model), blocks=masked)


FINE_TUNING = FineTuning(
    fine_tuning_job,
    MaskedModel,
    "an encoder with its masked language model head (BERT, RoBERTa, DistilBERT)",
    "block_length",
    heads=("masked",),
)
JOBS = TaskJobs(masked_job, FINE_TUNING)


def _reading(
    request: TrainRequest, config: RunConfig, tokenizer: DocumentTokenizer, around: tuple[Sequence[int], Sequence[int]]
) -> tuple[bool, DocumentTokenizer]:
    """Whether each line of the files is a sequence, by those the run started with; and the tokenizer of documents."""
    room = config.data.block_length - sum(map(len, around))
    reading = choose_reading(request.first_files, config.data.reading, tokenizer, room)
    notify(request, f"reading {reading}; data.reading can be lines or blocks")
    return reading.by_line, reading.tokenizer(tokenizer)


def check_block_room(config: RunConfig, n_special: int) -> None:
    """`UserError` if a block has no room for text besides its special tokens."""
    if config.data.block_length <= n_special:
        raise UserError(
            f"data.block_length = {config.data.block_length}: a block has {n_special} special tokens; raise it"
        )
