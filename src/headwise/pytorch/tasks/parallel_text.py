"""Training data of translation models: pairs, translation memories, mixed corpora, and warnings about small data."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from headwise.config.data import TranslationData
from headwise.config.model import longest_sequence
from headwise.config.settings import RunConfig
from headwise.device import usable_cores
from headwise.documents.memory import memories_as_tsv
from headwise.errors import UserError
from headwise.pytorch.data.streamed_pairs import StreamedPairs, train_on_first_pairs
from headwise.pytorch.tasks.job import TrainRequest, base_names, held_out_entry, hold_out, notify
from headwise.pytorch.tasks.streamed_text import streamed_pairs
from headwise.runtime.checkpoint.hub import FETCH
from headwise.runtime.checkpoint.model_card import headwise_command
from headwise.text.files.corpus import Corpus, parse_corpora
from headwise.text.files.file_checks import PAIRS, declaration_warnings, file_warnings, leakage_warnings, parse_pairs
from headwise.text.files.sources import STREAM_PREFIX, count_of, display_name, names_of
from headwise.text.files.split import parse_validation_size
from headwise.text.prepared.batch_planning import Pairs
from headwise.text.prepared.mixing import CorpusShare, Mixture, pairs_per_epoch
from headwise.text.prepared.prepared import PreparedCorpus, prepare, spool, train_tokenizer
from headwise.text.prepared.stream_shards import Shards, find_shards
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.text.tokens.tokenizer import Tokenizer


def small_data_warnings(
    request: TrainRequest,
    config: RunConfig,
    tokenizer: Tokenizer | None,
    train: Pairs | StreamedPairs,
    valid: Pairs,
) -> Iterator[str]:
    """Warnings about small data; `tokenizer` is None unless the model is trained from scratch."""
    if tokenizer and not isinstance(train, StreamedPairs):
        yield from few_training_pairs(request, len(train.src_lengths))
        if not config.data.tokenizer:
            tokens = int(train.src_lengths.sum(dtype=np.int64) + train.tgt_lengths.sum(dtype=np.int64))
            yield from large_vocabulary(tokenizer.vocab_size, tokens)
    yield from few_validation_pairs(len(valid.src_lengths))


Training = Sequence[Corpus] | Shards


def read_files(request: TrainRequest) -> tuple[Training, Training, Sequence[Corpus], dict[str, Any]]:
    """The training files, the training and validation pairs, and the entry of config.json for held-out pairs."""
    if any(path.startswith(STREAM_PREFIX) for path in request.train):
        shards, languages = find_shards(request.train), request.languages_of_files
        valid = spool(parse_pairs("--valid", request.valid, languages))
        for warning in (*file_warnings([], valid, languages), *shard_warnings(shards, languages)):
            notify(request, f"warning: {warning}")
        return shards, shards, valid, {}
    first, added = parse_pairs("--train", request.first_files), parse_pairs("--add", request.add)
    parts = hold_out(request, first, added=added)
    files, valid = spool([*first, *added]), [] if parts else spool(parse_pairs("--valid", request.valid))
    for warning in (*file_warnings(files, valid, request.languages_of_files), *leakage_warnings(files, valid)):
        notify(request, f"warning: {warning}")
    return files, *((parts.train, [parts.valid]) if parts else (files, valid)), held_out_entry(parts)


def shard_warnings(shards: Shards, languages: Sequence[str]) -> Iterator[str]:
    """`declaration_warnings` of the first shard that has pairs."""
    for file in shards.files:
        if pairs := [pair for _, pair in islice(file.read(), PAIRS)]:
            return declaration_warnings("--train", Corpus((file.path,)), pairs, languages)
    return iter(())


def new_tokenizer(request: TrainRequest, config: RunConfig, train: Training) -> Tokenizer:
    """A tokenizer that is trained on the training pairs."""
    report = partial(notify, request)
    if isinstance(train, Shards):
        assert isinstance(config.data, TranslationData)
        return train_on_first_pairs(train, config.data, request.special, config.train.seed, report=report)
    return train_tokenizer(train, config.data, request.special, report=report)


def prepare_both(
    request: TrainRequest,
    config: RunConfig,
    tokenizer: PairTokenizer,
    train: Training,
    valid: Sequence[Corpus],
    noun: str,
) -> tuple[Pairs | StreamedPairs, PreparedCorpus, dict[str, Any]]:
    """The tokenized training and validation data, and its entry "corpus" for config.json; a row is a `noun`."""
    names = {"train": base_names(request.train), "valid": base_names(request.valid)}
    if isinstance(train, Shards):
        stream, entry = streamed_pairs(request, config, tokenizer, train)
        validating = _prepare_validation(request, config, tokenizer, valid)
        return stream, validating, {**names, **entry, "valid_key": validating.key}
    workers = request.workers or usable_cores()
    prepared = prepare(train, tokenizer, config.data, progress=request.show, workers=workers)
    notify(request, f"training on {len(prepared):,} of {prepared.read:,} {noun}{_reasons(prepared)}")
    validating = _prepare_validation(request, config, tokenizer, valid)
    corpus = {
        **names,
        noun: len(prepared),
        "dropped": prepared.dropped,
        "key": prepared.key,
        "valid_key": validating.key,
    }
    data = config.data
    if isinstance(data, TranslationData) and (data.weights or data.mix or data.temperature != 1):
        return mixed_corpora(request, config, tokenizer, prepared, corpus), validating, corpus
    return prepared, validating, corpus


def _reasons(prepared: PreparedCorpus) -> str:
    """What was dropped, and why."""
    return "".join(f"; dropped {count:,}: {reason}" for reason, count in prepared.dropped.items())


def _prepare_validation(
    request: TrainRequest, config: RunConfig, tokenizer: PairTokenizer, valid: Sequence[Corpus]
) -> PreparedCorpus:
    """The tokenized validation data. Of texts too long for the model, held-out ones are dropped and others refused."""
    chosen_here = longest_sequence(config.model) is not None and parse_validation_size(request.valid) is not None
    validating = prepare(valid, tokenizer, config.data, progress=request.show, clean=chosen_here)
    if reasons := _reasons(validating):
        notify(request, f"validating on {len(validating):,} of {validating.read:,}{reasons}")
    _check_lengths(request.valid, config, tokenizer, validating)
    return validating


def _check_lengths(files: Sequence[str], config: RunConfig, tokenizer: PairTokenizer, valid: PreparedCorpus) -> None:
    """Check settings against the tokenized data."""
    if config.data.bpe_dropout and isinstance(tokenizer, Tokenizer):
        _ = tokenizer.merges  # raises UserError if the tokenizer has no merges
    limit = longest_sequence(config.model)
    if limit is None:
        return
    advice = "raise model.max_len or choose a model without this limit (a Transformer with model.positions=sinusoidal)"
    if not isinstance(tokenizer, Tokenizer):
        advice = "the limit of this model: leave out longer texts, and lower data.max_length"
    if config.data.max_length > limit:
        raise UserError(f"model.max_len = {limit} is less than data.max_length = {config.data.max_length}; {advice}")
    longest = max(valid.src_lengths.max(), valid.tgt_lengths.max())
    if longest > limit:
        named = " + ".join(map(display_name, files))
        raise UserError(f"{named}: a text has {longest} tokens, more than model.max_len = {limit}; {advice}")


def with_memories(request: TrainRequest) -> TrainRequest:
    """The request with translation memories replaced by cached TSV files of their pairs, and with their languages."""
    files = {"train": request.first_files, "add": request.add, "valid": request.valid}
    languages: Sequence[str] = request.languages_of_files
    for name, paths in files.items():
        if not paths:
            continue
        files[name], report = memories_as_tsv(paths, languages)
        languages = report.languages
        if report.units:
            notify(request, f"--{name} {' '.join(paths)}: {report}")
    languages = languages if all(languages) else request.languages
    return replace(request, **{**files, "train": [*files["train"], *files["add"]]}, languages=languages)


# BLEU on captions by the number of pairs: `tiny` trained from scratch, and a general model that was tuned, both with
# their best settings (benchmarks/results/few-pairs_1-core-cpu_2026-11-27.md; the table of docs/how-to/fine-tune.md).
MEASURED = {1_000: (17.8, 24.8), 3_000: (27.6, 30.3), 10_000: (37.4, 37.2)}
# A corpus BLEU of 200 captions has a 95 % interval of about 4 to each side, of 100 of 6, of 50 of 9 (bootstrap).
VALIDATION_PAIRS = 200
OCCURRENCES, BETTER = (
    20,
    50,
)  # mean occurrences of a token: the limit for a warning, and the advice
SMALLEST = 300  # recommended vocabulary size


def few_training_pairs(request: TrainRequest, pairs: int) -> Iterator[str]:
    """A warning about training from scratch, if tuning was better with the nearest number of pairs in `MEASURED`."""
    nearest = min(MEASURED, key=lambda measured: abs(math.log(max(1, pairs) / measured)))
    scratch, tuned = MEASURED[nearest]
    if tuned > scratch:
        train, valid = ([name for path in paths for name in names_of(path)] for paths in (request.train, request.valid))
        files = ["--train", *train, "--valid", *valid, "--out", f"{request.out}-tuned"]
        languages = ["--languages", "-".join(request.languages)] if all(request.languages) else []
        model = f"a model for your languages, such as {FETCH}Helsinki-NLP/opus-mt-en-de"
        yield (
            f"warning: --train has {count_of(pairs, 'pair')}, few for training from scratch: with {nearest:,} pairs "
            f"of captions, `tiny` had a BLEU of {scratch}, and a pretrained model that was fine-tuned {tuned}. With "
            f"{model}, compare: {headwise_command()} tune MODEL {shlex.join([*files, *languages])}"
        )


def few_validation_pairs(pairs: int) -> Iterator[str]:
    """A warning about a small validation set."""
    if pairs < VALIDATION_PAIRS:
        yield (
            f"warning: --valid has {count_of(pairs, 'pair')}, too few to compare models (at least "
            f"{VALIDATION_PAIRS}): its loss and BLEU may be off by several points; hold out more (--valid 10% of "
            f"{10 * VALIDATION_PAIRS:,} pairs or more), or collect more pairs"
        )


def large_vocabulary(vocab_size: int, tokens: int) -> Iterator[str]:
    """A warning about a vocabulary that is too large for this number of training tokens.

    >>> list(large_vocabulary(8000, 800_000))
    []
    >>> next(large_vocabulary(8000, 60_000)).partition(": add ")[2]
    '--set data.vocab_size=1200'
    """
    better = better_vocabulary(vocab_size, tokens)
    if better < vocab_size:
        yield (
            f"warning: a vocabulary of {vocab_size:,} tokens is too large for {tokens:,} training tokens, which is "
            f"{tokens / vocab_size:.1f} for each (at least {OCCURRENCES}): add --set data.vocab_size={better}"
        )


def better_vocabulary(vocab_size: int, tokens: int) -> int:
    """`vocab_size`, or a smaller size where the training tokens are too few for it."""
    better = max(SMALLEST, tokens // BETTER // 100 * 100)
    return min(vocab_size, better) if tokens < OCCURRENCES * vocab_size else vocab_size


def mixed_corpora(
    request: TrainRequest, config: RunConfig, tokenizer: PairTokenizer, prepared: PreparedCorpus, entry: dict[str, Any]
) -> Mixture:
    """The corpora of `request.train` and `data.mix`, sampled by weights and temperature.

    Args:
        prepared: the corpora of `request.train`, concatenated.
        entry: gets the key of `data.mix`, which a resumed run checks.

    Raises:
        UserError: the number of weights differs from the number of corpora, a corpus is empty or cannot be read, or
            there are word links, which do not support sampling.
    """
    data, names = config.data, [*map(str, parse_corpora(request.train))]
    if request.alignments:
        raise UserError("--alignments does not go with data.weights, data.temperature or data.mix: leave one out")
    weights = data.weights or (1.0,) * len(names)
    if len(weights) != len(names):
        named = f"{len(names)} corpora of --train ({', '.join(names)})"
        raise UserError(f"data.weights = {list(weights)}: give one weight for each of the {named}")
    kept = prepared.kept
    if len(kept) != len(names) or not all(kept):
        empty = [name for name, size in zip(names, kept, strict=False) if not size]
        raise UserError(f"{', '.join(empty or names)}: has no pairs to train on; leave it out")
    starts = [sum(kept[:i]) for i in range(len(names))]
    counts = pairs_per_epoch(kept, weights, data.temperature)
    shares = [CorpusShare(prepared, *numbers) for numbers in zip(starts, kept, counts, strict=True)]
    if data.mix:
        general = prepare(
            spool(parse_pairs("data.mix", [*map(str.strip, data.mix.split(","))], request.languages_of_files)),
            tokenizer,
            data,
            progress=request.show,
        )
        entry["mix_key"] = general.key
        count = round(sum(counts) * data.mix_share / (1 - data.mix_share))
        shares, names = [*shares, CorpusShare(general, 0, len(general), count)], [*names, data.mix]
    for share, name in zip(shares, names, strict=True):
        times = share.pairs_per_epoch / share.size
        notify(
            request,
            f"pairs per epoch from {name}: {share.pairs_per_epoch:,} of {share.size:,} ({times:.2f} times)",
        )
    return Mixture(shares)
