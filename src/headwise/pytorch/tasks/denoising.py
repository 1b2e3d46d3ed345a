"""Denoising pre-training of encoder-decoders (BART, arXiv:1910.13461): masked text in, the original text out.

From scratch on lines of text (`DenoisingJob`, noise in `text/prepared/noise.py`): a first stage for translation models
with little parallel data, which `headwise train --init` then trains on pairs. A pretrained T5 or BART is trained on
running text in blocks (`CorruptionJob`, noise in `pytorch/data/corruption.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headwise.config.model import longest_sequence
from headwise.config.settings import SETTINGS, RunConfig, flatten
from headwise.core.train import Objective
from headwise.errors import UserError
from headwise.families.registry import traits_of
from headwise.models.translation.translator import Translator
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.corruption import (
    BlockSpecials,
    CorruptedBlocks,
    Corruption,
    SpanCorruption,
    block_length_for,
    denoising_for,
    noise_counts,
)
from headwise.pytorch.tasks.automatic import resolve_auto
from headwise.pytorch.tasks.job import TrainRequest, choose_tokenizer, held_out_entry, hold_out, notify
from headwise.pytorch.tasks.language_modelling import NoisedTextJob, texts_for_model
from headwise.pytorch.tasks.parallel_text import prepare_both
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs, trainable_network
from headwise.pytorch.tasks.translation import TranslationJob, completed, translator_rows
from headwise.pytorch.training.extra_dropout import without_extra_dropout
from headwise.pytorch.training.step import nll_of, translation_objective
from headwise.pytorch.training.validation import Outputs, Shard, mean_over_shards
from headwise.runtime.tokenizers.pretrained_tokenizer import pieces_of
from headwise.runtime.tokenizers.vocabulary import Vocabulary, bare, fingerprint, marks_around
from headwise.text.files.corpus import Corpus, plain_texts
from headwise.text.files.documents import DocumentTokenizer, PreparedText
from headwise.text.files.sources import Pair
from headwise.text.prepared.batch_planning import Noise
from headwise.text.prepared.noise import MASK, TextInfilling
from headwise.text.prepared.prepared import spool, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer


class DenoisingJob(TranslationJob):
    """Lines of text with noise, to be restored. BLEU compares restored texts with the originals."""

    def noise(self, seed: int) -> Noise:
        assert isinstance(self.tokenizer, Tokenizer)
        return TextInfilling(self.tokenizer, seed)

    def simple_baseline(self) -> None:
        """None: other texts do not restore a text."""

    def searched(self, row: int) -> Pair:
        text, _ = self.valid.text(row)
        return self.tokenizer.decode(self.noise(0)(self.valid.src(row), 0, row)), text


def denoising_job(request: TrainRequest, config: RunConfig, folder: Path) -> DenoisingJob:
    """Read, tokenise and check the data for training from scratch."""
    if config.data.block_length != SETTINGS["data.block_length"].default:
        raise UserError(
            f"data.block_length = {config.data.block_length}: training from scratch uses lines of at most "
            "data.max_length tokens; running text in blocks needs --init with a T5 or BART"
        )
    first, added = plain_texts(request.first_files), plain_texts(request.add)
    parts = hold_out(request, first, added=added)
    files = spool([*first, *added])
    train, valid = (parts.train, [parts.valid]) if parts else (files, spool(plain_texts(request.valid)))
    tokenizer = _tokenizer(request, config, folder, train)
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "texts")
    config, about = completed(request, config, folder, tokenizer), {"corpus": {**corpus, **held_out_entry(parts)}}
    return DenoisingJob(config, tokenizer, about, prepared, validating, None, "", None, request.show)


def _tokenizer(request: TrainRequest, config: RunConfig, folder: Path, train: Sequence[Corpus]) -> Tokenizer:
    """A tokenizer with a mask token."""
    given = config.data.tokenizer
    if given and MASK not in Tokenizer.load(given).declared.values():
        raise UserError(
            f"data.tokenizer = {given}: has no mask token {MASK}; leave it out, or use the "
            f"tokenizer of a model that was trained with --special '{MASK}'"
        )
    special = list(dict.fromkeys([*request.special, MASK]))

    def train_new() -> Tokenizer:
        return train_tokenizer(train, config.data, special, sources_only=True, report=partial(notify, request))

    return choose_tokenizer(replace(request, special=special), config, folder, train_new)


# Settings for lines and for search.
UNUSED = ("data.max_length", "data.max_length_ratio", "train.batching", "train.validate_bleu")


@dataclass(frozen=True)
class CorruptionJob(NoisedTextJob):
    """Blocks of running text with the noise of the model's family, to be restored."""

    def objective(self, network: nn.Module) -> Objective:
        return translation_objective(network, self.config.model.pad_id, self.config.train)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The log-likelihood of the targets for the validation text."""
        outputs: Outputs = {"nll": [], "targets": []}
        with without_extra_dropout(network):
            for batch in shard.of(self.validation_batches()):
                outputs["nll"].append(nll_of(network, batch, self.config.model.pad_id, device))
                outputs["targets"].append(batch.n_target_tokens)
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood of a target token, in nats."""
        return {"loss": mean_over_shards(outputs, "nll", "targets")}


def corruption_job(request: TrainRequest, config: RunConfig, folder: Path) -> CorruptionJob:
    """Read, tokenise and check the data that a pretrained encoder-decoder is fine-tuned on."""
    _check_settings(request, config)
    model = _between(FINE_TUNING.read(request.init), request)
    corruption, room = _corruption(model, config.data.block_length, request.init)
    about, train, valid = texts_for_model(request, config, _document_tokenizer(model))
    if len(train) <= room:
        raise UserError(
            f"{', '.join(request.train)}: {len(train):,} tokens, and a block of data.block_length = "
            f"{config.data.block_length} needs {room + 1:,}: add text or lower it"
        )
    about |= {"network": translator_rows(model, config.model.dropout), "usage": "restore"}
    config = replace(config, train=resolve_auto(request, config, folder))

    def corrupted(text: PreparedText) -> CorruptedBlocks:
        return corruption(text.tokens)

    make = partial(trainable_network, model, config.model.dropout)
    return CorruptionJob(config, model.tokenizer, about, train, valid, make, layout=SameLayout(model), blocks=corrupted)


FINE_TUNING = FineTuning(corruption_job, Translator, "a T5, mT5, BART or mBART", "block_length")
JOBS = TaskJobs(denoising_job, FINE_TUNING)


def _check_settings(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for settings that have no effect, or exceed the limit of the model."""
    values = flatten(config)
    for key in UNUSED:
        if values[key] != SETTINGS[key].default:
            raise UserError(f"{key} = {values[key]}: has no effect on denoising of running text; leave it out")
    if config.train.best_metric != "loss":
        raise UserError(f"train.best_metric = {config.train.best_metric}: denoising of running text only has a loss")
    limit = longest_sequence(config.model)
    if limit and config.data.block_length > limit:
        raise UserError(f"data.block_length = {config.data.block_length}: {request.init} reads at most {limit} tokens")


def _between(model: Translator, request: TrainRequest) -> Translator:
    """The model for the language of the texts, if it needs one (mBART)."""
    source, target = request.source_language, request.target_language
    if source != target or (source and model.config.family != "mbart"):
        raise UserError(
            "--source-language and --target-language: only mBART needs them for denoising, both with the code of the "
            "language of the texts"
        )
    return model.between(source, target)


def _corruption(
    model: Translator, length: int, origin: str
) -> tuple[Callable[[NDArray[np.int32]], CorruptedBlocks], int]:
    """The noise of the model's family on running text, and the number of text tokens in a block."""
    specials = _block_specials(model)
    room = length - len(specials.prefix) - len(specials.suffix)
    if _restores(model) == "spans":
        room = block_length_for(length) if length > 3 else 0
        corrupt: Corruption = SpanCorruption(_sentinels(model.vocabulary, noise_counts(max(2, room))[1], origin))
    else:
        corrupt = _denoising(model, origin)
    if room < 2:
        raise UserError(
            f"data.block_length = {length}: leaves no room for text besides the special tokens of {origin}; raise it"
        )
    return partial(CorruptedBlocks, length=room, corrupt=corrupt, specials=specials), room


def _restores(model: Translator) -> str:
    """See `Traits.restores`."""
    return traits_of(model.config.family).restores


def _sentinels(vocabulary: Vocabulary, n: int, origin: str) -> NDArray[np.int64]:
    """The ids of T5's first n sentinels; in mT5's file they start with a space."""
    found = [vocabulary.id_of(f"{space}<extra_id_{i}>") for i in range(n) for space in ("", "▁")]
    ids = [i for i in found if i is not None]
    if len(ids) < n:
        raise UserError(
            f"--init {origin}: its vocabulary has {len(ids)} sentinels such as <extra_id_0>, and a block of "
            f"data.block_length needs {n}: {'lower it' if ids else 'restore the original tokenizer'}"
        )
    return np.array(ids, np.int64)


def _denoising(model: Translator, origin: str) -> Corruption:
    """The noise of BART and mBART; `UserError` for other families."""
    vocabulary = model.vocabulary
    mask, end = vocabulary.id_of("<mask>"), vocabulary.id_of("</s>")
    is_able = _restores(model) == "texts"
    if not is_able or mask is None or end is None:
        kind = f"a {model.config.family} model{' without <mask> in its vocabulary' * is_able}"
        raise UserError(f"--init {origin}: is {kind}; denoising of running text supports T5, mT5, BART and mBART")
    return denoising_for(pieces_of(vocabulary, range(model.config.vocab_size)), mask, end)


def _block_specials(model: Translator) -> BlockSpecials:
    """The special tokens that the model's tokenizer adds to a pair."""
    target = model._translator.tokenizer
    source = target.source
    n_before, _ = marks_around(source.encode(""), source.encode("a"))
    before, behind = source.encode("")[:n_before], source.encode("")[n_before:]
    return BlockSpecials(
        before, [*behind, source.eos_id], target.encode(""), target.bos_id, target.eos_id, target.pad_id
    )


def _document_tokenizer(model: Translator) -> DocumentTokenizer:
    """With the model's vocabulary; as in the originals, an end token separates documents for BART, nothing for T5."""
    encode, _, _ = bare(model.vocabulary)
    end = model.vocabulary.id_of("</s>")
    behind = [] if _restores(model) == "spans" or end is None else [end]
    origin, size = fingerprint(model.path), model.config.vocab_size
    return DocumentTokenizer(lambda texts: [encode(text) for text in texts], [], behind, origin, size)
