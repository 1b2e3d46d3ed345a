"""Denoising pre-training (BART, arXiv:1910.13461): plain text with words masked in, the text itself out.

The first stage of a translator for whom there is more text than pairs: encoder and decoder learn both languages from
lines that need no translation, and `headwise train --init` goes on from them with pairs. The network, trainer and
objective are a translator's; here are the texts, the noise on what is read (`data/noise.py`) and what `headwise.load`
makes of such a model. Nothing tells the decoder the language: the words that are left do. A published T5 or BART goes
on with running text (`corruption`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headwise.checkpoint.tuned import SameLayout
from headwise.checkpoint.vocabulary import Vocabulary, bare, fingerprint, marks_around
from headwise.config.model import longest_sequence
from headwise.config.settings import SETTINGS, RunConfig, flatten
from headwise.data.batch import Batch
from headwise.data.batch_planning import Noise
from headwise.data.corpus import Corpus, plain_texts
from headwise.data.corruption import (
    BlockSpecials,
    CorruptedBlocks,
    Corruption,
    SpanCorruption,
    block_length_for,
    denoising_for,
    noise_counts,
)
from headwise.data.documents import DocumentTokenizer
from headwise.data.noise import MASK, TextInfilling
from headwise.data.prepared import spool, train_tokenizer
from headwise.data.sources import Pair
from headwise.data.stream import EndlessStream
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError
from headwise.generation.pretrained_tokenizer import pieces_of
from headwise.models.translator import Translator
from headwise.network.extra_dropout import without_extra_dropout
from headwise.tasks.automatic import decided
from headwise.tasks.job import TrainRequest, choose_tokenizer, held_out_row, hold_out
from headwise.tasks.language_modelling import LanguageJob, own_texts
from headwise.tasks.parallel_text import prepare_both
from headwise.tasks.pretrained import FineTuning, more_dropout, trainable
from headwise.tasks.translation import TranslationJob, completed, translator_rows
from headwise.training.step import Objective, nll_of, translation_objective
from headwise.training.validation import Outputs, Shard, mean_over_shards


class DenoisingJob(TranslationJob):
    """See `headwise.tasks.job.Job`. BLEU compares texts that were restored with what they were."""

    def noise(self, seed: int) -> Noise:
        assert isinstance(self.tokenizer, Tokenizer)
        return TextInfilling(self.tokenizer, seed)

    def searched(self, row: int) -> Pair:
        text, _ = self.valid.text(row)
        return self.tokenizer.decode(self.noise(0)(self.valid.src(row), 0, row)), text


def denoising_job(request: TrainRequest, config: RunConfig, folder: Path) -> DenoisingJob:
    """Read, tokenise and check all the texts."""
    if config.data.block_length != SETTINGS["data.block_length"].default:
        raise UserError(
            f"data.block_length = {config.data.block_length}: a model of ours is trained on lines, data.max_length "
            "pieces long at most; running text is for --init of a T5 or a BART"
        )
    files = plain_texts(request.train)
    parts = hold_out(request, files)
    files = spool(files)
    train, valid = (parts.train, [parts.valid]) if parts else (files, spool(plain_texts(request.valid)))
    tokenizer = _tokenizer(request, config, folder, train)
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "texts")
    config, about = completed(request, config, folder, tokenizer), {"corpus": {**corpus, **held_out_row(parts)}}
    return DenoisingJob(config, tokenizer, about, prepared, validating, None, "", None, request.show)


def _tokenizer(request: TrainRequest, config: RunConfig, folder: Path, train: Sequence[Corpus]) -> Tokenizer:
    """One that has a piece for the mask."""
    given = config.data.tokenizer
    if given and MASK not in Tokenizer.load(given).declared.values():
        raise UserError(
            f"data.tokenizer = {given}: has no piece {MASK}, with which words are masked; leave it out, or name the "
            f"tokenizer of a model that was trained with --special '{MASK}'"
        )
    special = list(dict.fromkeys([*request.special, MASK]))

    def learn() -> Tokenizer:
        return train_tokenizer(train, config.data, special, sources_only=True)

    return choose_tokenizer(replace(request, special=special), config, folder, learn)


SPANS, TEXTS = ("t5", "mt5"), ("bart", "mbart")  # families, by what they are trained for
UNREAD = (
    "data.max_length",
    "data.max_length_ratio",
    "train.batching",
    "train.validate_bleu",
)  # of lines, and of search


@dataclass(frozen=True)
class CorruptionJob(LanguageJob):
    """See `headwise.tasks.job.Job`."""

    corrupted: Callable[[NDArray[np.int32]], CorruptedBlocks] = field(kw_only=True)  # of tokens

    def objective(self, network: nn.Module) -> Objective:
        return translation_objective(network, self.config.model.pad_id, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[Batch]:  # pyright: ignore
        train = self.config.train
        return self.corrupted(self.train.tokens).stream(train.tokens_per_batch, train.seed, state, pin)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The log-likelihood of what is written for the validation text, which is always corrupted alike."""
        batches = self.corrupted(self.valid.tokens).fixed(self.config.train.tokens_per_batch)
        outputs: Outputs = {"nll": [], "targets": []}
        with without_extra_dropout(network):
            for batch in shard.of(batches):
                outputs["nll"].append(nll_of(network, batch, self.config.model.pad_id, device))
                outputs["targets"].append(batch.n_target_tokens)
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood of a token that is to be written, in nats."""
        return {"loss": mean_over_shards(outputs, "nll", "targets")}


def corruption_job(request: TrainRequest, config: RunConfig, folder: Path) -> CorruptionJob:
    """Read, tokenise and check the data that a pretrained encoder-decoder is fine-tuned on."""
    _check_settings(request, config)
    model = _between(FINE_TUNING.read(request.init), request)
    corrupted, room = _corruption(model, config.data.block_length, request.init)
    about, train, valid = own_texts(request, config, _cutter(model))
    if len(train) <= room:
        raise UserError(
            f"{', '.join(request.train)}: {len(train):,} tokens, and a block of data.block_length = "
            f"{config.data.block_length} takes {room:,} and one more: give more text or lower it"
        )
    about |= {"network": translator_rows(model, config.model.dropout), "usage": "restore"}
    config = replace(config, train=decided(request, config, folder))

    def make() -> nn.Module:
        dropout = config.model.dropout
        return trainable(model.network, dropout, more_dropout(model.hf_config, dropout))

    return CorruptionJob(config, model.tokenizer, about, train, valid, SameLayout(model), make, corrupted=corrupted)


FINE_TUNING = FineTuning(corruption_job, Translator, "a T5, mT5, BART or mBART", "block_length")


def _check_settings(request: TrainRequest, config: RunConfig) -> None:
    """`UserError` for what would be ignored, or does not go with a vocabulary and a length that are there."""
    values = flatten(config)
    for key in UNREAD:
        if values[key] != SETTINGS[key].default:
            raise UserError(f"{key} = {values[key]}: means nothing where running text is restored; leave it out")
    if config.train.best_metric != "loss":
        raise UserError(f"train.best_metric = {config.train.best_metric}: what is restored is judged by its loss alone")
    limit = longest_sequence(config.model)
    if limit and config.data.block_length > limit:
        raise UserError(f"data.block_length = {config.data.block_length}: {request.init} reads {limit} tokens at most")


def _between(model: Translator, request: TrainRequest) -> Translator:
    """The model for the language of the texts, where it has to be told one (mBART)."""
    source, target = request.source_language, request.target_language
    if source != target or (source and model.config.family != "mbart"):
        raise UserError(
            "--source-language and --target-language: are for mBART here, which restores a text in its own language: "
            "give it the same code twice, another model none"
        )
    return model.between(source, target)


def _corruption(
    model: Translator, length: int, origin: str
) -> tuple[Callable[[NDArray[np.int32]], CorruptedBlocks], int]:
    """What is done to running text in tokens by the family of the model, and how many of them a block takes."""
    family, marks = model.config.family, _marks(model)
    room = length - len(marks.prefix) - len(marks.suffix)
    if family in SPANS:
        room = block_length_for(length) if length > 3 else 0
        corrupt: Corruption = SpanCorruption(_sentinels(model.vocabulary, noise_counts(max(2, room))[1], origin))
    else:
        corrupt = _denoising(model, origin)
    if room < 2:
        raise UserError(f"data.block_length = {length}: has no room for text beside the marks of {origin}; raise it")
    return partial(CorruptedBlocks, length=room, corrupt=corrupt, specials=marks), room


def _sentinels(vocabulary: Vocabulary, n: int, origin: str) -> NDArray[np.int64]:
    """The ids of the first n of T5's sentinels; mT5's file has a blank before them."""
    found = [vocabulary.id_of(f"{blank}<extra_id_{i}>") for i in range(n) for blank in ("", "▁")]
    ids = [i for i in found if i is not None]
    if len(ids) < n:
        raise UserError(
            f"--init {origin}: its vocabulary has {len(ids)} sentinels such as <extra_id_0>, and a block of "
            f"data.block_length needs {n}: {'lower it' if ids else 'put the tokenizer of the model back'}"
        )
    return np.array(ids, np.int64)


def _denoising(model: Translator, origin: str) -> Corruption:
    """BART's and mBART's noise; others have no mask, or were not trained with it."""
    vocabulary = model.vocabulary
    mask, end = vocabulary.id_of("<mask>"), vocabulary.id_of("</s>")
    if model.config.family not in TEXTS or mask is None or end is None:
        raise UserError(
            f"--init {origin}: is a model of {model.config.family}"
            f"{' without <mask> in its vocabulary' * (model.config.family in TEXTS)}; running text is restored by T5, "
            "mT5, BART and mBART"
        )
    return denoising_for(pieces_of(vocabulary, range(model.config.vocab_size)), mask, end)


def _marks(model: Translator) -> BlockSpecials:
    """As the model has them around a pair."""
    side = model._translator.tokenizer
    source = side.source
    n_before, _ = marks_around(source.encode(""), source.encode("a"))
    before, behind = source.encode("")[:n_before], source.encode("")[n_before:]
    return BlockSpecials(before, [*behind, source.eos_id], side.encode(""), side.bos_id, side.eos_id, side.pad_id)


def _cutter(model: Translator) -> DocumentTokenizer:
    """By a published model's vocabulary; documents are parted by BART's end mark, and not by T5, as there."""
    encode, _, _ = bare(model.vocabulary)
    end = model.vocabulary.id_of("</s>")
    behind = [] if model.config.family in SPANS or end is None else [end]
    origin, size = fingerprint(model.path), model.config.vocab_size
    return DocumentTokenizer(lambda texts: [encode(text) for text in texts], [], behind, origin, size)
