"""Training translation models: cross-entropy of the next token, BLEU; from scratch or from a pretrained model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headwise.config.data import TranslationData
from headwise.config.model import longest_sequence
from headwise.config.settings import WITH_DECODER, RunConfig
from headwise.core.batches import Stream
from headwise.core.build import load_parameters, parameters_of
from headwise.core.train import Objective
from headwise.core.transformer import Transformer
from headwise.evaluate.baselines import MOST_PAIRS, Baseline, evenly, most_similar
from headwise.evaluate.bleu import bleu_signature, corpus_scores
from headwise.evaluate.significance import paired_bootstrap
from headwise.models.translation.translator import Translator
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.data.batching import PairBatches, unchanged_tokens, validation_batches
from headwise.pytorch.data.directions import BothDirections, in_two_stages
from headwise.pytorch.data.stream import BatchShare, Cursor, EndlessStream
from headwise.pytorch.data.streamed_pairs import StreamedPairs
from headwise.pytorch.tasks.alignment import alignment_objective, training_links
from headwise.pytorch.tasks.automatic import resolve_auto, tuning_settings, warn_of_padding
from headwise.pytorch.tasks.job import (
    Job,
    TrainRequest,
    check_special,
    choose_tokenizer,
    notify,
)
from headwise.pytorch.tasks.parallel_text import (
    few_validation_pairs,
    new_tokenizer,
    prepare_both,
    read_files,
    small_data_warnings,
)
from headwise.pytorch.tasks.pretrained import (
    FineTuning,
    TaskJobs,
    dropout_row,
    extra_dropout_rates,
    trainable_network,
    vocabulary_row,
)
from headwise.pytorch.tasks.validation import FIRST, progress_bar, search_engine_of, validation_translations
from headwise.pytorch.training.extra_dropout import without_extra_dropout
from headwise.pytorch.training.step import nll_of, translation_objective
from headwise.pytorch.training.validation import Outputs, Shard, ValidationSample, mean_over_shards
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.layout import is_family
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.trained import RUN
from headwise.runtime.search.translator import TextTranslator
from headwise.text.files.columns import Column
from headwise.text.files.sources import Pair
from headwise.text.prepared.batch_planning import Noise, Pairs
from headwise.text.prepared.noise import TokenDropout
from headwise.text.prepared.prepared import PreparedCorpus
from headwise.text.prepared.stream_shards import Shards
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.alignment import supervised_layer


@dataclass(frozen=True)
class TranslationJob(Job):
    """Translations of texts."""

    tokenizer: PairTokenizer
    train: Pairs | StreamedPairs
    valid: PreparedCorpus
    start: Folder | None  # the initial model
    origin: str  # its path
    links: Column | None = None  # word links of the training pairs, for `train.alignment_weight`
    show: bool = False  # progress of a validation

    @property
    def baseline(self) -> dict[str, float]:
        return {"loss": math.log(self.config.model.vocab_size)}

    def simple_baseline(self) -> Baseline | None:
        """The translation of the training source that is most similar to each source."""
        if not self.searched_pairs or isinstance(self.train, StreamedPairs):
            return None
        known = [self.train.text(row) for row in evenly(len(self.train.src_lengths), MOST_PAIRS).tolist()]
        found = most_similar([src for src, _ in known], [src for src, _ in self.searched_pairs])
        figures = {"bleu": bleu([known[row][1] for row in found], self.searched_pairs)}
        advice = "more pairs, longer training or a pretrained model (`headwise tune`) would help"
        return Baseline("the translation of the most similar training text", figures, advice)

    @property
    def signature(self) -> str:
        return bleu_signature([tgt for _, tgt in self.searched_pairs])

    @cached_property
    def searched_pairs(self) -> list[Pair]:
        """The sources for search, the first `train.validate_bleu` of the validation set, and their references."""
        return [self.searched(row) for row in range(min(len(self.valid), self.config.train.validate_bleu))]

    @cached_property
    def translated_pairs(self) -> list[Pair]:
        """The `searched_pairs`; without them, the first pair for the sample on the terminal."""
        return self.searched_pairs or ([self.searched(0)] if self.show else [])

    def network(self) -> nn.Module:
        network = build_network(self.config.model)
        if self.start:
            load_parameters(network, parameters_of(self.start.network), self.origin)
        return network

    def objective(self, network: nn.Module) -> Objective:
        train = self.config.train
        objective = translation_objective(network, self.config.model.pad_id, train, padded=self.links is not None)
        if self.links is None:
            return objective
        assert isinstance(network, Transformer) and not isinstance(self.train, StreamedPairs)
        layer = supervised_layer(train.alignment_layer, len(network.decoder.layers))
        weight, text = train.alignment_weight, self.train.text
        return alignment_objective(objective, network, layer, weight, self.links, text, self.tokenizer)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> Stream:
        """The training pairs; for the first share `data.both_directions` of the updates in both directions."""
        train, data = self.config.train, self.config.data
        if isinstance(self.train, StreamedPairs):
            return self.train.stream(self._batches, train.accumulate, train.seed, state, share)
        part = data.both_directions if isinstance(data, TranslationData) else 0
        one_way = self._batches(self.train)
        if not part:
            return one_way.stream(state, share)
        walk = partial(in_two_stages, self._batches(BothDirections(self.train)), one_way)
        n_first = round(part * train.max_steps) * train.accumulate
        return EndlessStream(walk, state, share, start=Cursor(left=n_first))

    def _batches(self, pairs: Pairs) -> PairBatches:
        train, data = self.config.train, self.config.data
        settings = data, train.tokens_per_batch, train.seed, train.batching == "bucketed"
        noise = self.noise(train.seed)
        if isinstance(data, TranslationData) and data.source_dropout:
            assert isinstance(self.tokenizer, Tokenizer)
            noise = TokenDropout(self.tokenizer, data.source_dropout, train.seed)
        return PairBatches(pairs, self.tokenizer, *settings, noise)

    def noise(self, seed: int) -> Noise:
        """The noise on sources, in training and in validation: none."""
        return unchanged_tokens

    def searched(self, row: int) -> Pair:
        """A source of the validation set for search, and its reference."""
        return self.valid.text(row)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The log-likelihood of batches, and translations of the `translated_pairs`."""
        pad_id, pairs = self.tokenizer.pad_id, self.translated_pairs
        own = [*shard.of(range(len(pairs)))]
        rows = sorted({*range(min(FIRST, len(pairs))), *own}) if own else []  # the first ones set the length limits
        nll, targets, texts = list[float](), list[int](), list[str]()
        with progress_bar(len(self.valid) + len(rows), self.show) as bar:
            batches = validation_batches(self.valid, self.tokenizer, self.config.train.tokens_per_batch, self.noise(0))
            for batch in shard.of(batches):
                nll.append(nll_of(network, batch, pad_id, device))
                targets.append(batch.n_target_tokens)
                bar.update(len(batch.src))
            for some in self.translated(network, [pairs[row] for row in rows]):
                texts += some
                bar.update(len(some))
        of_row = dict(zip(rows, texts, strict=True))
        return {"nll": nll, "targets": targets, "text": [of_row[row] for row in own]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Loss over the validation set, and BLEU of the translations of its first `train.validate_bleu` pairs."""
        loss = {"loss": mean_over_shards(outputs, "nll", "targets")}
        return {**loss, "bleu": bleu(outputs["text"], self.searched_pairs)} if self.searched_pairs else loss

    def sample(self, outputs: Outputs) -> ValidationSample | None:
        """The translation of the first pair."""
        if not outputs["text"]:
            return None
        source, reference = self.searched(0)
        return ValidationSample(source, outputs["text"][0], reference)

    def translated(self, network: Any, pairs: Sequence[Pair]) -> Iterator[list[str]]:
        """Translations of the sources by the current network, a few texts at a time."""
        assert isinstance(self.tokenizer, Tokenizer)
        limit = longest_sequence(self.config.model)
        return validation_translations(network, self.tokenizer, self.config.decode, limit, pairs)


def bleu(texts: Sequence[str], pairs: Sequence[Pair]) -> float:
    """BLEU of translations of pairs."""
    return corpus_scores(texts, [tgt for _, tgt in pairs], metrics=["BLEU"])["BLEU"].score


def translation_job(request: TrainRequest, config: RunConfig, folder: Path) -> TranslationJob:
    """Read, tokenise and check the data for training from scratch, or from a model trained here."""
    start = read_folder(request.init, tasks=WITH_DECODER, published=False) if request.init else None
    if start:
        check_special(request.special, start.tokenizer, f"of --init {request.init}")
    files, train, valid, held = read_files(request)
    train_new = partial(new_tokenizer, request, config, train)
    tokenizer = start.tokenizer if start else choose_tokenizer(request, config, folder, train_new)
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "pairs")
    for warning in small_data_warnings(request, config, None if start else tokenizer, prepared, validating):
        notify(request, warning)
    links = None
    if request.alignments or config.train.alignment_weight:
        assert not isinstance(files, Shards) and not isinstance(prepared, StreamedPairs)  # see `check_stream`
        links, corpus["key"] = training_links(request, config, files, prepared, corpus["key"])
    config = completed(request, config, folder, tokenizer)
    if start and "pairs" in corpus:
        tuned = tuning_settings(request, config.train, folder, corpus["pairs"], len(validating))
        config = replace(config, train=tuned)
    about = {"corpus": {**corpus, **held}}
    return TranslationJob(config, tokenizer, about, prepared, validating, start, request.init, links, request.show)


def completed(request: TrainRequest, config: RunConfig, folder: Path, tokenizer: Tokenizer) -> RunConfig:
    """The configuration with the settings that depend on data and machine."""
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id)
    config = replace(config, model=model, train=resolve_auto(request, config, folder))
    warn_of_padding(request, config)
    return config


@dataclass(frozen=True)
class TranslationFineTuningJob(TranslationJob):
    """Translations by a pretrained model."""

    model: Translator = field(kw_only=True)

    def network(self) -> nn.Module:
        return trainable_network(self.model, self.config.model.dropout)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """Like `TranslationJob`; without the extra dropout modules, which are slow."""
        with without_extra_dropout(network):
            return super().outputs(network, device, shard)

    def translated(self, network: Any, pairs: Sequence[Pair]) -> Iterator[list[str]]:
        """Like `TranslationJob`, with the search settings of generation_config.json."""
        return translate_in_chunks(self.model.with_network(network), [src for src, _ in pairs])


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> TranslationFineTuningJob:
    """Read, tokenise and check the data that a pretrained model is fine-tuned on."""
    model: Translator = FINE_TUNING.read(request.init).between(request.source_language, request.target_language)
    _, train, valid, held = read_files(request)
    tokenizer = model._translator.tokenizer
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "pairs")
    for warning in few_validation_pairs(len(validating)):
        notify(request, warning)
    config = replace(config, train=resolve_auto(request, config, folder))
    warn_of_padding(request, config)
    decode = model.decode_config
    about = {
        "corpus": {**corpus, **held},
        "network": translator_rows(model, config.model.dropout),
        "search": f"beam {decode.beam_size}, length penalty {decode.length_penalty}",
        "settings": RUN,
    }
    return TranslationFineTuningJob(
        config, tokenizer, about, prepared, validating, None, request.init, None, request.show,
        layout=SameLayout(model), model=model,
    )  # fmt: skip


def translator_rows(model: Translator, dropout: float) -> dict[str, str]:
    """The rows of the model card for the network."""
    config, stack = model.config, model.config.encoder
    assert stack and config.decoder
    shape = f"{stack.n_layers} + {config.decoder.n_layers} layers, d_model {stack.d_model}, d_ff {stack.d_ff}"
    between = " to ".join(filter(None, (model.source_language, model.target_language)))
    return {
        "architecture": f"{config.family}: {shape}, {stack.n_heads} heads, {stack.norm_position}-norm",
        **vocabulary_row(model, config.tgt_vocab_size or config.vocab_size),
        **({"languages": between} if between else {}),
        **dropout_row(extra_dropout_rates(model.hf_config, dropout), dropout),
    }


def report_improvement(request: TrainRequest, job: Any) -> None:
    """Report BLEU and chrF++ before and after training on the `searched_pairs`, with a paired bootstrap (Koehn 2004).

    The best model was chosen on these pairs, so it looks better than on other pairs.
    """
    pairs = [job.searched(row) for row in range(min(len(job.valid), job.config.train.validate_bleu))]
    if not pairs:
        return
    sources = [src for src, _ in pairs]
    translations = list[list[str]]()
    with progress_bar(2 * len(pairs), request.show) as bar:
        for path in (request.init, request.out):
            translations.append([])
            for texts in translate_in_chunks(_translator(path, request), sources):
                translations[-1] += texts
                bar.update(len(texts))
    before, after = translations
    compared = paired_bootstrap(before, after, [tgt for _, tgt in pairs], metrics=["BLEU", "chrF++"])
    figures = (f"{one.name} {one.a.score:.2f} and {one.b.score:.2f} (p {one.p_value:.3f})" for one in compared.values())
    notify(request, f"before and after, on {len(pairs):,} validation pairs: {', '.join(figures)}")


def _translator(path: str, request: TrainRequest) -> Any:
    """The translator in a folder."""
    if is_family(path):
        return FINE_TUNING.read(path).between(request.source_language, request.target_language)
    folder = read_folder(path, tasks=WITH_DECODER, published=False)
    config = folder.config
    return TextTranslator(
        search_engine_of(folder.network), folder.tokenizer, config.decode, longest_sequence(config.model)
    )


CHUNK_SIZE = 50  # sentences between two updates of a progress bar


def translate_in_chunks(model: Any, sources: Sequence[str]) -> Iterator[list[str]]:
    """The translations of all sources, one line each, a chunk at a time."""
    for start in range(0, len(sources), CHUNK_SIZE):
        yield [" ".join(one.text.split()) for one in model.translate(sources[start : start + CHUNK_SIZE])]


FINE_TUNING = FineTuning(
    fine_tuning_job,
    Translator,
    "an encoder-decoder of text",
    "max_length",
    report_improvement,
)
JOBS = TaskJobs(translation_job, FINE_TUNING)
