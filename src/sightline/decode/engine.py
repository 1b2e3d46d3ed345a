"""Batched decoding of token ids: sort by length, cut into batches, pad, encode, search, restore the order.

Not here: text (`translator`) and the search itself (`search`), which this module hands a step function.
"""

import hashlib
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.config import DecodeConfig
from sightline.decode.candidates import Candidates, CandidateTable
from sightline.decode.constraints import FREE, Limits
from sightline.decode.sampling import SamplingOptions
from sightline.decode.search import Cache, Hypothesis, SearchOptions, Step, beam_search, sample
from sightline.errors import UserError


LEAST_SHARE = 512  # of `batch_tokens` for each thread: fewer rows would leave the products waiting for their weights


@runtime_checkable
class EncoderDecoder(Protocol):
    """What a model must offer to be decoded; every architecture does. What `encode` gives is the model's own affair:
    search hands it back and never looks inside.
    """

    training: bool

    def train(self, mode: bool = True) -> Any: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def encode(self, src: Tensor, src_mask: Tensor) -> Any: ...
    def decode(self, tgt_in: Tensor, memory: Any, src_mask: Tensor, cache: Any = None) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...
    def start_cache(self, memory: Any, src_mask: Tensor) -> Any: ...


@runtime_checkable
class OwnSearch(Protocol):
    """A model that can also search by itself, in several threads at once, and finds what `beam_search` does.

    `search(sources, limits, options, few)` is given sources with their end marks and, of `constraints`, `search` and
    `candidates`, `Limits`, `SearchOptions` and `Candidates` or None. What it gives for each source has the fields of a
    `Hypothesis`.
    """

    def search(self, sources: Any, limits: Any, options: Any, few: Any) -> Any: ...


@dataclass(frozen=True)
class SpecialIds:
    """The ids that mean something to the search."""

    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    unk_id: int = 3


def check_decoding(config: DecodeConfig) -> None:
    """Raise a `UserError` for settings that contradict each other or have no meaning."""
    if not config.sample and config.n_best > config.beam_size:
        raise UserError(
            f"decode.n_best = {config.n_best} is more than decode.beam_size = {config.beam_size}: "
            "ask for fewer or search with a wider beam"
        )
    if config.beam_size < 1 or config.n_best < 1 or config.batch_tokens < 1:
        raise UserError("decode.beam_size, decode.n_best and decode.batch_tokens must be at least 1")
    if not (math.isfinite(config.temperature) and config.temperature > 0):
        raise UserError(f"decode.temperature = {config.temperature}: must be greater than 0 and finite")
    if not 0 < config.top_p <= 1:
        raise UserError(f"decode.top_p = {config.top_p}: must be greater than 0 and at most 1")
    if config.max_source_length < 8:  # any character, in bytes, with its end mark and what is declared before it
        raise UserError(f"decode.max_source_length = {config.max_source_length}: must be at least 8")
    if not (math.isfinite(config.length_penalty) and config.length_penalty >= 0):
        raise UserError(f"decode.length_penalty = {config.length_penalty}: must be at least 0 and finite")


def decode_tokens(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    special: SpecialIds | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    max_len: int | None = None,
    shortlist: CandidateTable | None = None,
) -> list[list[Hypothesis]]:
    """The hypotheses for each source, best first, in the order of the sources.

    An empty source has one empty hypothesis and is not shown to the model. What a source yields does not
    depend on the other sources, but for the rounding of padded matrix products.

    Args:
        model: is put into evaluation mode for the time being.
        sources: token ids without start or end mark; the end mark is added here.
        config: how to search. Lengths relate to the source with its end mark.
        special: the ids of start, end, padding and unknown.
        prefixes: token ids that each output must begin with; the longest length is extended by them.
        max_len: the longest output the model can write, where it has a limit (learned positions).
        shortlist: what outputs may be made of; None = the whole vocabulary, whatever `config.shortlist` asks for.

    Raises:
        UserError: the settings make no sense, the model gives numbers that are not finite, or the device's memory
            does not hold a single source. A batch that it does not hold is cut in half.
    """
    check_decoding(config)
    special = special or SpecialIds()
    prefixes = prefixes if prefixes is not None else [()] * len(sources)
    found: list[list[Hypothesis]] = [[Hypothesis([], 0.0, 0.0, [])] for _ in sources]
    was_training = model.training
    model.train(False)

    own = isinstance(model, OwnSearch) and not (config.sample or config.no_repeat_ngram)
    search = _search_by_model if own else _search_by_steps

    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        few, forced = [sources[i] for i in batch], [prefixes[i] for i in batch]
        return search(model, few, forced, config, special, max_len, shortlist)

    try:
        for batch, results in (_in_threads if own else _in_turn)(decode, sources, config):
            for i, hypotheses in zip(batch, results, strict=True):
                if not (hypotheses and math.isfinite(hypotheses[0].log_prob)):
                    raise not_finite()
                found[i] = hypotheses
    finally:
        model.train(was_training)
    return found


Results = Iterator[tuple[list[int], list[list[Hypothesis]]]]
Decode = Callable[[list[int]], list[list[Hypothesis]]]


def _in_turn(decode: Decode, sources: Sequence[Sequence[int]], config: DecodeConfig) -> Results:
    """One batch after the other; one that the device's memory does not hold is cut in half."""
    waiting = list(batches([len(source) for source in sources], config))[::-1]
    while waiting:
        batch = waiting.pop()
        try:
            yield batch, decode(batch)
        except torch.OutOfMemoryError:
            waiting += _halves(batch, config)


def _in_threads(decode: Decode, sources: Sequence[Sequence[int]], config: DecodeConfig) -> Results:
    """Batches side by side, as many as torch would use threads; together they take the memory of one batch."""
    threads = torch.get_num_threads()
    share = max(min(config.batch_tokens, LEAST_SHARE), config.batch_tokens // threads)
    waiting = list(batches([len(source) for source in sources], replace(config, batch_tokens=share)))
    if threads == 1 or len(waiting) < 2:
        yield from ((batch, decode(batch)) for batch in waiting)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from zip(waiting, pool.map(decode, waiting), strict=True)


def batches(lengths: Sequence[int], config: DecodeConfig) -> Iterator[list[int]]:
    """Indices of non-empty sources, the longest first.

    Sentences x hypotheses x longest source, with its end mark, stays within `batch_tokens`; a source beyond
    that is a batch of its own.

    >>> list(batches([3, 0, 9, 4], DecodeConfig(batch_tokens=20, beam_size=2)))
    [[2], [3, 0]]
    """
    hypotheses = config.n_best if config.sample else config.beam_size
    batch: list[int] = []
    longest_first = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    for i in longest_first:
        if batch and (len(batch) + 1) * (lengths[batch[0]] + 1) * hypotheses > config.batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _halves(batch: list[int], config: DecodeConfig) -> list[list[int]]:
    """A batch that did not fit into the device's memory as two; their memory grows with rows x length alone."""
    if len(batch) == 1:
        raise UserError(
            "the device's memory does not hold the translation of one line: lower decode.beam_size (now "
            f"{config.beam_size}) or decode.max_source_length (now {config.max_source_length}), or use --device cpu"
        )
    torch.cuda.empty_cache()
    middle = len(batch) // 2
    return [batch[middle:], batch[:middle]]


@torch.inference_mode()
def _search_by_steps(
    model: EncoderDecoder,
    sources: list[Sequence[int]],
    prefixes: list[Sequence[int]],
    config: DecodeConfig,
    special: SpecialIds,
    max_len: int | None,
    shortlist: CandidateTable | None,
) -> list[list[Hypothesis]]:
    start = start_decoding(model, sources, prefixes, config, special, max_len, shortlist)
    return _with_ids(_search(start.step, start.cache, start.limits, sources, config, start.special), start.few)


@torch.inference_mode()
def _search_by_model(
    model: Any,
    sources: list[Sequence[int]],
    prefixes: list[Sequence[int]],
    config: DecodeConfig,
    special: SpecialIds,
    max_len: int | None,
    shortlist: CandidateTable | None,
) -> list[list[Hypothesis]]:
    ended = [[*source, special.eos_id] for source in sources]
    limits = to_limits([len(source) for source in ended], prefixes, config, max_len)
    few = None
    if shortlist is not None:
        few = shortlist.candidates(*pad_sources(sources, special), limits.prefix, astuple(special))
        limits, special = few.limits(limits), _places(special, few)
    found = model.search(ended, limits, search_options(config, special), few)
    return _with_ids([[Hypothesis(**vars(f)) for f in ranked] for ranked in found], few)


def _with_ids(found: list[list[Hypothesis]], few: Candidates | None) -> list[list[Hypothesis]]:
    return found if few is None else [[few.with_ids(hypothesis) for hypothesis in ranked] for ranked in found]


@dataclass(frozen=True)
class Start:
    """Everything a search needs for some sources; with a shortlist it speaks of places instead of ids."""

    step: Step
    cache: Any
    limits: Limits
    special: SpecialIds
    few: Candidates | None  # between places and ids; None: there are only ids


def start_decoding(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]],
    config: DecodeConfig,
    special: SpecialIds,
    max_len: int | None,
    shortlist: CandidateTable | None,
) -> Start:
    """Encode the sources, and apply the shortlist if there is one; arguments as `decode_tokens`."""
    device = next(model.parameters()).device
    src, src_mask = (x.to(device) for x in pad_sources(sources, special))
    limits = to_limits([len(source) + 1 for source in sources], prefixes, config, max_len).to(device)
    cache = model.start_cache(model.encode(src, src_mask), src_mask)
    if shortlist is None:
        return Start(step_of(model), cache, limits, special, None)
    few = shortlist.candidates(src, src_mask, limits.prefix, astuple(special))
    return Start(few.step(model), few.cache(cache), few.limits(limits), _places(special, few), few)


def _places(special: SpecialIds, few: Candidates) -> SpecialIds:
    return SpecialIds(*(few.place(token) for token in astuple(special)))


def not_finite() -> UserError:
    """What to raise where the model gives no number."""
    return UserError("the model's predictions are not finite: its training diverged or its file is damaged")


def _search(
    step: Step,
    cache: Cache,
    limits: Limits,
    sources: list[Sequence[int]],
    config: DecodeConfig,
    special: SpecialIds,
) -> list[list[Hypothesis]]:
    options = search_options(config, special)
    if not config.sample:
        return beam_search(step, cache, limits, options)
    sampling = SamplingOptions(config.temperature, config.top_k, config.top_p, config.seed)
    streams = torch.tensor([random_stream(source) for source in sources], device=limits.max_length.device)
    return sample(step, cache, limits, options, sampling, streams)


def search_options(config: DecodeConfig, special: SpecialIds) -> SearchOptions:
    """What the search is to know of the settings."""
    return SearchOptions(
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
        n_best=config.n_best,
        no_repeat_ngram=config.no_repeat_ngram,
        bos_id=special.bos_id,
        eos_id=special.eos_id,
        suppressed=(special.pad_id, special.bos_id, special.unk_id),
    )


def step_of(model: EncoderDecoder) -> Step:
    """The step function of a model: feed the newest tokens, get the logits that follow them."""

    def step(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        hidden = model.decode(tokens, cache.memory, cache.src_mask, cache)
        return model.logits(hidden[:, -1])

    return step


def pad_sources(
    sources: Sequence[Sequence[int]], special: SpecialIds
) -> tuple[Int[Tensor, "batch src_len"], Bool[Tensor, "batch src_len"]]:
    """Sources with their end marks as one matrix, and where it is not padding.

    >>> pad_sources([[5, 6], [7]], SpecialIds())[0].tolist()
    [[5, 6, 2], [7, 2, 0]]
    """
    ended = [torch.tensor([*source, special.eos_id]) for source in sources]
    src = torch.nn.utils.rnn.pad_sequence(ended, batch_first=True, padding_value=special.pad_id)
    lengths = torch.tensor([len(tokens) for tokens in ended])
    return src, torch.arange(src.size(1)) < lengths.unsqueeze(1)


def to_limits(
    source_lengths: Sequence[int],
    prefixes: Sequence[Sequence[int]],
    config: DecodeConfig,
    max_len: int | None,
) -> Limits:
    """Shortest and longest outputs in proportion to the sources, and the prefixes as one matrix."""
    longest, shortest = [], []
    for length, prefix in zip(source_lengths, prefixes, strict=True):
        most = int(config.max_length_factor * length) + config.max_length_extra + len(prefix)
        most = max(1, min(most, max_len) if max_len else most)
        longest.append(most)
        shortest.append(min(int(config.min_length_factor * length), most - 1))
    rows = [torch.tensor(list(prefix), dtype=torch.long) for prefix in prefixes]
    prefix = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=FREE)
    return Limits(torch.tensor(shortest), torch.tensor(longest), prefix)


def random_stream(source: Sequence[int]) -> int:
    """The number of a sentence's random stream: a hash of its tokens, so that it is the same in any batch."""
    digest = hashlib.blake2b(array("q", source).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
