"""Training a translator: aligned text, an encoder and a decoder, cross-entropy of the next piece, BLEU."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline.architectures.registry import build_network
from sightline.checkpoint.folder import Folder
from sightline.checkpoint.read import read_folder
from sightline.checkpoint.trained import CONFIG, read_run
from sightline.config.settings import WITH_DECODER, RunConfig, TrainConfig, longest_sequence
from sightline.data.arranging import Noise, Pairs
from sightline.data.batch import Stream
from sightline.data.batching import BatchStream, unchanged, validation_batches
from sightline.data.corpus import Corpus, display_name
from sightline.data.first_look import doubts, leaks, parse_pairs
from sightline.data.prepared import Column, PreparedCorpus, learn_tokenizer, prepare, spool
from sightline.data.rows import Pair
from sightline.data.side import Side
from sightline.data.tokenizer import Tokenizer
from sightline.device import device_name, usable_cores
from sightline.errors import UserError
from sightline.evaluate.bleu import bleu_signature, corpus_scores
from sightline.network.parameters import load_parameters, parameters_of
from sightline.network.transformer import Transformer
from sightline.tasks.job import (
    OURS,
    FolderLayout,
    TrainRequest,
    check_special,
    choose_tokenizer,
    file_names,
    held_out,
    hold_out,
    say,
)
from sightline.tasks.small_data import few_training_pairs, few_validation_pairs, large_vocabulary
from sightline.tasks.validation import FIRST, progress_bar, validation_texts
from sightline.training.packed import are_packable, packs, pays_in_bfloat16
from sightline.training.step import Objective, nll_of, translation_objective
from sightline.training.validation import Outputs, Shard, mean


@dataclass(frozen=True)
class TranslationJob:
    """See `sightline.tasks.job.Job`."""

    config: RunConfig
    tokenizer: Side
    about: dict[str, Any]
    train: Pairs
    valid: PreparedCorpus
    start: Folder | None  # whose weights come first
    origin: str  # its path
    links: Column | None = None  # of the training pairs' words, for `train.alignment_weight`
    show: bool = False  # progress of a validation
    layout: FolderLayout = OURS

    @property
    def baseline(self) -> dict[str, float]:
        return {"loss": math.log(self.config.model.vocab_size)}

    @property
    def signature(self) -> str:
        return bleu_signature([tgt for _, tgt in self.searched_pairs])

    @cached_property
    def searched_pairs(self) -> list[Pair]:
        """The first `train.validate_bleu` sources of the validation set to search with, and their references."""
        return [self.searched(row) for row in range(min(len(self.valid), self.config.train.validate_bleu))]

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
        from sightline.inspect.alignment import supervised_layer
        from sightline.tasks.alignment import alignment_objective

        assert isinstance(network, Transformer)
        layer = supervised_layer(train.alignment_layer, len(network.decoder.layers))
        weight, text = train.alignment_weight, self.train.text
        return alignment_objective(objective, network, layer, weight, self.links, text, self.tokenizer)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> Stream:
        """Pairs as they are; for the first `data.both_directions` of the updates also the other way round."""
        train, share = self.config.train, self.config.data.both_directions
        one_way = partial(self._read, self.train, pin)
        if not share:
            return one_way(state)
        from sightline.data.directions import BothDirections, TwoStages  # which a plain training does without

        both_ways = partial(self._read, BothDirections(self.train), pin)
        return TwoStages(both_ways, one_way, round(share * train.max_steps) * train.accumulate, state)

    def _read(self, pairs: Pairs, pin: bool, state: Mapping[str, int] | None) -> BatchStream:
        train, data = self.config.train, self.config.data
        settings = data, train.tokens_per_batch, train.seed, train.batching == "bucketed"
        noise = self.noise(train.seed)
        if data.source_dropout:
            from sightline.data.noise import PieceDropout  # likewise

            assert isinstance(self.tokenizer, Tokenizer)
            noise = PieceDropout(self.tokenizer, data.source_dropout, train.seed)
        return BatchStream(pairs, self.tokenizer, *settings, state, pin=pin, noise=noise)

    def noise(self, seed: int) -> Noise:
        """What is done to a source before it is read, in training and in validation: nothing."""
        return unchanged

    def searched(self, row: int) -> Pair:
        """A source of the validation set to search with, and its reference."""
        return self.valid.text(row)

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """The log-likelihood of batches, and translations of the `searched_pairs`."""
        pad_id, pairs = self.tokenizer.pad_id, self.searched_pairs
        own = [*shard.of(range(len(pairs)))]
        rows = sorted({*range(min(FIRST, len(pairs))), *own}) if own else []  # the first bound the search of all
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
        """Loss over the validation set, and BLEU of real search output on its first `train.validate_bleu` pairs."""
        loss = {"loss": mean(outputs, "nll", "targets")}
        return {**loss, "bleu": bleu(outputs["text"], self.searched_pairs)} if self.searched_pairs else loss

    def translated(self, network: Any, pairs: Sequence[Pair]) -> Iterator[list[str]]:
        """What the network makes of the sources as it is now, a few texts at a time."""
        assert isinstance(self.tokenizer, Tokenizer)
        limit = longest_sequence(self.config.model)
        return validation_texts(network, self.tokenizer, self.config.decode, limit, pairs)


def bleu(texts: Sequence[str], pairs: Sequence[Pair]) -> float:
    """Of translations of the first of each pair."""
    return corpus_scores(texts, [tgt for _, tgt in pairs], metrics=["BLEU"])["BLEU"].score


def translation_job(request: TrainRequest, config: RunConfig, folder: Path) -> TranslationJob:
    """Read, tokenise and check everything a translator is trained on."""
    start = read_folder(request.init, tasks=WITH_DECODER, published=False) if request.init else None
    if start:
        check_special(request.special, start.tokenizer, f"of --init {request.init}")
    files, train, valid, held = read_files(request)

    def learn() -> Tokenizer:
        return learn_tokenizer(train, config.data, request.special)

    tokenizer = start.tokenizer if start else choose_tokenizer(request, config, folder, learn)
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "pairs")
    for warning in _small_data(config, None if start else tokenizer, prepared, validating):
        say(request, warning)
    links = None
    if request.alignments or config.train.alignment_weight:
        from sightline.tasks.alignment import links_to_learn  # which a plain training does without

        links, corpus["key"] = links_to_learn(request, config, files, prepared, corpus["key"])
    config = completed(request, config, folder, tokenizer)
    about = {"corpus": {**corpus, **held}}
    return TranslationJob(config, tokenizer, about, prepared, validating, start, request.init, links, request.show)


def _small_data(config: RunConfig, tokenizer: Tokenizer | None, train: Pairs, valid: Pairs) -> Iterator[str]:
    """Warnings about few data; `tokenizer` is that of a model that starts from scratch."""
    if tokenizer:
        yield from few_training_pairs(len(train.src_lengths))
        if not config.data.tokenizer:
            tokens = int(train.src_lengths.sum(dtype=np.int64) + train.tgt_lengths.sum(dtype=np.int64))
            yield from large_vocabulary(tokenizer.vocab_size, tokens)
    yield from few_validation_pairs(len(valid.src_lengths))


def read_files(request: TrainRequest) -> tuple[Sequence[Corpus], Sequence[Corpus], Sequence[Corpus], dict[str, Any]]:
    """The training files; what to train and to validate on; what config.json says of a part that was held out."""
    files = parse_pairs("--train", request.train)
    parts = hold_out(request, files)
    files, valid = spool(files), [] if parts else spool(parse_pairs("--valid", request.valid))
    for doubt in (*doubts(files, valid), *leaks(files, valid)):
        say(request, doubt)
    return files, *((parts.train, [parts.valid]) if parts else (files, valid)), held_out(parts)


def prepare_both(
    request: TrainRequest,
    config: RunConfig,
    tokenizer: Side,
    train: Sequence[Corpus],
    valid: Sequence[Corpus],
    noun: str,
) -> tuple[Pairs, PreparedCorpus, dict[str, Any]]:
    """What is trained and validated on, cut into pieces and checked, and what config.json says of it; a row is a
    `noun`.
    """
    workers = request.workers or usable_cores()
    prepared = prepare(train, tokenizer, config.data, progress=request.show, workers=workers)
    reasons = "".join(f"; dropped {count:,}: {reason}" for reason, count in prepared.dropped.items())
    say(request, f"training on {len(prepared):,} of {prepared.read:,} {noun}{reasons}")
    validating = prepare(valid, tokenizer, config.data, progress=request.show, clean=False)
    _check(request.valid, config, tokenizer, validating)
    corpus = {
        "train": file_names(request.train),
        "valid": file_names(request.valid),
        noun: len(prepared),
        "dropped": prepared.dropped,
        "key": prepared.key,
        "valid_key": validating.key,
    }
    if config.data.weights or config.data.mix or config.data.temperature != 1:
        from sightline.tasks.mixing import mixed  # which a plain training does without

        return mixed(request, config, tokenizer, prepared, corpus), validating, corpus
    return prepared, validating, corpus


def completed(request: TrainRequest, config: RunConfig, folder: Path, tokenizer: Tokenizer) -> RunConfig:
    """The configuration with what the data and the machine decide."""
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id)
    config = replace(config, model=model, train=decided(request, config, folder))
    report_batching(request, config)
    return config


def decided(request: TrainRequest, config: RunConfig, folder: Path) -> TrainConfig:
    """[train] with every "auto" replaced: as in the run that is resumed, or else by these rules.

    `batching` follows from the settings and from whether the device is a CPU, so that a command trains alike on every
    machine: "random" on a CPU if the compiled library could train such a network without padding, installed or not.
    `precision` also depends on the processor: "bf16" if that is faster; else "float32" on a CPU and "auto" on a GPU.
    """
    train, on_cpu = config.train, device_name(request.device) == "cpu"
    packable, pays = on_cpu and _is_packable(config), pays_in_bfloat16(config.model.d_model)
    chosen = {"batching": "random" if packable else "bucketed"}
    chosen["precision"] = (
        "bf16" if packable and pays and _is_packable(config, packs) else "float32" if on_cpu else "auto"
    )
    if request.resume and (folder / CONFIG).is_file():
        chosen = {name: getattr(read_run(folder)[0].train, name) for name in chosen}
    train = replace(train, **{name: value for name, value in chosen.items() if getattr(train, name) == "auto"})
    if on_cpu and train.precision == "bf16" and not pays:
        say(request, "train.precision = bf16 is not known to be faster than float32 with this model and processor")
    return train


def report_batching(request: TrainRequest, config: RunConfig) -> None:
    """Say which pairs make up a batch, and what makes that slow here."""
    batching = config.train.batching
    lengths = "of all lengths" if batching == "random" else "of similar length"
    say(request, f"train.batching = {batching}: each batch has pairs {lengths}")
    if batching == "random" and device_name(request.device) == "cpu" and not _is_packable(config, packs):
        say(
            request,
            "random batches have much padding, which only the compiled library can leave out, and it is not used here: "
            "install it, or start a run with --set train.batching=bucketed",
        )


def _is_packable(config: RunConfig, are_packable: Callable[..., bool] = are_packable) -> bool:
    """Whether the compiled library can train such a network on a CPU without padding; with `packs`, also here."""
    model, train = config.model, config.train
    plain = model.architecture == "transformer" and not (train.compile or train.alignment_weight)
    plain = plain and not (model.n_kv_heads or model.positions == "relative")
    widths = (width or model.d_model // model.n_heads for width in (model.d_k, model.d_v))
    return plain and are_packable(tuple(widths), config.data.max_length)


def _check(valid_files: Sequence[str], config: RunConfig, tokenizer: Side, valid: PreparedCorpus) -> None:
    """Settings that turn out to be impossible once the text is cut into pieces."""
    if config.data.bpe_dropout and isinstance(tokenizer, Tokenizer):
        _ = tokenizer.merges  # a UserError if there is nothing to drop
    limit = longest_sequence(config.model)
    if limit is None:
        return
    way_out = "raise model.max_len or choose a model without such a limit (a Transformer's model.positions=sinusoidal)"
    if not isinstance(tokenizer, Tokenizer):
        way_out = "that is all this model reads: leave out longer texts, and lower data.max_length"
    if config.data.max_length > limit:
        raise UserError(f"model.max_len = {limit} is less than data.max_length = {config.data.max_length}; {way_out}")
    longest = max(valid.src_lengths.max(), valid.tgt_lengths.max())
    if longest > limit:
        files = " + ".join(map(display_name, valid_files))
        raise UserError(f"{files}: a text has {longest} pieces, more than model.max_len = {limit}; {way_out}")
