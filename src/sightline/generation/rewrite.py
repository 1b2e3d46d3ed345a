"""An encoder and a decoder write a text anew: a translation, a summary, an answer.

Sources to outputs, ids only. What a decoder is to begin with (its start mark, a forced language code) is read before
the search begins. A network in the compiled library's form (`network.prepared`) searches by itself, in threads, where
the settings ask for no more than it can do; anything else is searched step by step. Not here: languages and prefixes
(`languages`), sound (`transcribe`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sightline.decode.candidates import Candidates, CandidateTable
from sightline.decode.contract import Hypothesis, OwnSearch, SearchOptions, SpecialIds, Stop
from sightline.decode.engine import Bounds, in_threads, not_finite, usable_threads, with_ids
from sightline.decode.partial_steps import PartialSteps
from sightline.decode.steps import Start, step_of
from sightline.errors import UserError
from sightline.generation.decoding import (
    after_prompts,
    begin,
    in_batches,
    limits_of,
    no_repeat,
    search,
    stream,
    streams_of,
)
from sightline.generation.settings import NEVER, GenerationSettings

# What a model's own search reads of the settings, and what there is to it of the others: what they are when off.
COMPILED = (
    "max_new_tokens", "min_new_tokens", "beam_size", "length_penalty", "early_stopping", "n_best", "batch_size",
    "start_id", "forced_start_id", "begins", "forced_end_id", "end_ids", "suppressed", "suppressed_first",
)  # fmt: skip
OFF = {"no_repeat_ngram": 0, "sample": False, "stop": ()}
ONE, SEVERAL = ("bos_id", "eos_id", "forced_end"), ("suppressed", "other_ends", "suppressed_first")  # ids of a search
UNREAD = ("temperature", "top_k", "top_p", "seed", "pad_id", "compute", "unused")  # where nothing is drawn or padded


def is_compiled(settings: GenerationSettings) -> bool:
    """Whether these settings ask for no more than a model's own search can do; what is not listed here, it cannot."""
    known = {*COMPILED, *UNREAD}
    if settings.forced_end_id in settings.suppressed:
        return False
    return all(f.name in known or getattr(settings, f.name) == OFF.get(f.name, f) for f in fields(settings))


@torch.inference_mode()
def rewrite(
    network: Any,
    sources: Sequence[Sequence[int]],
    settings: GenerationSettings,
    max_len: int | None = None,
    stop: Stop | None = None,
    offered: CandidateTable | None = None,
) -> list[list[Hypothesis]]:
    """What the network makes of each source, best first, in the order of the sources.

    Args:
        network: with the contract of a `Transformer`; by itself where it has an `OwnSearch` and that can do it.
        sources: token ids with all marks of their family, at least one each.
        max_len: the longest output the decoder can write, where it has a limit (learned positions).
        stop: says which rows are to end.
        offered: the shortlist; None = the whole vocabulary.

    Raises:
        UserError: the checkpoint does not say what its decoder begins with, or gives numbers that are not finite.
    """
    beginning, device = beginning_of(settings), next(network.parameters()).device
    if stop is None and is_compiled(settings) and isinstance(network, OwnSearch):
        return _rewrite_compiled(network, sources, settings, max_len, offered)
    room = None if max_len is None else max_len - len(beginning) + 1
    options = options_of(settings, stop)
    settings_left = without_beginning(settings)

    def work(batch: list[Sequence[int]]) -> list[list[Hypothesis]]:
        limits, streams = limits_of([room] * len(batch), settings_left, device), streams_of(batch)
        cache = _cache_of(network, batch, settings)
        if offered is None:
            step, prompts = step_of(network), torch.tensor([beginning] * len(batch), device=device)
            return search(step, begin(step, cache, prompts), limits, options, settings, streams)
        few = offered.candidates(batch, [beginning] * len(batch), _ids_of(options))
        steps = PartialSteps(few, device)
        step, placed = steps.step(network), few.places(np.array(beginning))
        begun = begin(step, steps.cache(cache), torch.from_numpy(placed).to(device).expand(len(batch), -1))
        asked = _placed(replace(options, **_of_history(settings, placed.tolist(), stop, steps.ids)), few)
        return with_ids(search(step, begun, limits, asked, settings, streams), few)

    return in_batches(sources, settings.batch_size, work)


def _rewrite_compiled(
    network: OwnSearch,
    sources: Sequence[Sequence[int]],
    settings: GenerationSettings,
    max_len: int | None,
    offered: CandidateTable | None,
) -> list[list[Hypothesis]]:
    """By the network's own search, in threads; the threads share what is less than a batch for each."""
    stop, options = np.zeros(1, np.int32), options_of(settings)

    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        read, bounds, few, places = [sources[i] for i in batch], _bounds(len(batch), settings, max_len), None, options
        if offered is not None:
            few = offered.candidates(read, [beginning_of(settings)] * len(read), _ids_of(options))
            bounds, places = replace(bounds, prefix=few.places(bounds.prefix)), _placed(options, few)
        return with_ids(network.search(read, bounds, places, few, stop), few)

    size = max(1, min(settings.batch_size, -(-len(sources) // usable_threads())))
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for batch, results in in_threads(decode, batches, stop, f"lower beam_size (now {settings.beam_size})"):
        for i, hypotheses in zip(batch, results, strict=True):
            if not (hypotheses and np.isfinite(hypotheses[0].log_prob)):
                raise not_finite()
            found[i] = hypotheses
    return found


def _of_history(
    settings: GenerationSettings, beginning: Sequence[int], stop: Stop | None, ids: Int[Tensor, " places"]
) -> dict[str, Any]:
    """What asks the search for all that was written, where that are places among candidates."""
    n = settings.no_repeat_ngram
    return {
        "rules": (no_repeat(n, beginning),) if n else (),
        "stop": (lambda places: stop(ids[places])) if stop else None,
    }


def _ids_of(options: SearchOptions) -> list[int]:
    """Every id that the options name."""
    several = [i for name in SEVERAL for i in getattr(options, name)]
    return [i for i in (*(getattr(options, name) for name in ONE), *several) if i is not None and i != NEVER]


def _placed(options: SearchOptions, few: Candidates) -> SearchOptions:
    """The options in places among the candidates."""

    def place(i: int | None) -> int | None:
        return i if i is None or i == NEVER else few.place(i)

    one: Any = {name: place(getattr(options, name)) for name in ONE}
    several: Any = {name: tuple(map(place, getattr(options, name))) for name in SEVERAL}
    return replace(options, **one, **several)


def _bounds(rows: int, settings: GenerationSettings, max_len: int | None) -> Bounds:
    """Of outputs with what they begin with behind the start mark, which stands before what is written."""
    forced = beginning_of(settings)[1:]
    longest = max(len(forced) + 1, min(settings.max_new_tokens, max_len or settings.max_new_tokens))
    shortest = min(max(settings.min_new_tokens, len(forced)), longest - 1) if settings.end_ids else 0
    return Bounds(np.full(rows, shortest), np.full(rows, longest), np.array([forced] * rows, np.int64))


@torch.inference_mode()
def stream_rewrite(
    network: Any, source: Sequence[int], settings: GenerationSettings, max_len: int | None = None
) -> Iterator[int]:
    """The tokens made of one source, one by one, without the end mark."""
    start, options = start_rewriting(network, source, settings, max_len)
    yield from stream(step_of(network), start.cache, start.limits, options, settings, *streams_of([source]))


def start_rewriting(
    network: Any, source: Sequence[int], settings: GenerationSettings, max_len: int | None = None
) -> tuple[Start, SearchOptions]:
    """The search of one source, with all marks of its family, before its first step."""
    beginning, device = beginning_of(settings), next(network.parameters()).device
    room = None if max_len is None else max_len - len(beginning) + 1
    limits = limits_of([room], without_beginning(settings), device)
    options = options_of(settings)
    special = SpecialIds(settings.pad_id, beginning[0], options.eos_id, NEVER)
    step, prompts = step_of(network), torch.tensor([beginning], device=device)
    begun = begin(step, _cache_of(network, [source], settings), prompts)
    return Start(after_prompts(step), begun, limits, special, None, tuple(beginning[1:])), options


def with_beginning(found: Hypothesis, settings: GenerationSettings) -> Hypothesis:
    """What was found behind what it begins with, which is certain."""
    return _behind(beginning_of(settings)[1:], found)


def with_begins(found: Hypothesis, settings: GenerationSettings) -> Hypothesis:
    """What was found behind the text that a caller wanted it to begin with, which is part of the output."""
    return _behind(settings.begins, found) if settings.begins else found


def _behind(forced: Sequence[int], found: Hypothesis) -> Hypothesis:
    certain = [0.0] * len(forced)
    return replace(found, tokens=[*forced, *found.tokens], token_log_probs=certain + found.token_log_probs)


def _cache_of(network: Any, sources: Sequence[Sequence[int]], settings: GenerationSettings) -> Any:
    """Read the sources."""
    device = next(network.parameters()).device
    src, mask = (x.to(device) for x in pad_right(sources, settings.pad_id))
    return network.start_cache(network.encode(src, mask), mask)


def pad_right(
    sources: Sequence[Sequence[int]], pad_id: int
) -> tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]:
    """Sources as one matrix, and where it is not padding.

    >>> pad_right([[5, 6], [7]], pad_id=0)[0].tolist()
    [[5, 6], [7, 0]]
    """
    lengths = torch.tensor([len(source) for source in sources])
    longest = int(lengths.max())
    rows = torch.tensor([[*source, *[pad_id] * (longest - len(source))] for source in sources])
    return rows, torch.arange(longest) < lengths.unsqueeze(1)


def beginning_of(settings: GenerationSettings) -> list[int]:
    """The start mark, and what is forced behind it: a language's code, the beginning that a caller wants."""
    if settings.start_id is None:
        raise UserError("neither config.json nor generation_config.json has a decoder_start_token_id")
    forced = [] if settings.forced_start_id is None else [settings.forced_start_id]
    return [settings.start_id, *forced, *settings.begins]


def options_of(settings: GenerationSettings, stop: Stop | None = None) -> SearchOptions:
    """For the search; what is forced behind the start mark counts as written."""
    beginning = beginning_of(settings)
    begun, n = len(beginning) - 1, settings.no_repeat_ngram
    rules = (no_repeat(n, beginning),) if n else ()
    options = replace(settings, no_repeat_ngram=0).options(begun, rules, stop)
    end_at = max(begun + 1, settings.max_new_tokens)
    return replace(options, bos_id=beginning[0], forced_end=settings.forced_end_id, end_at=end_at)


def without_beginning(settings: GenerationSettings) -> GenerationSettings:
    """Lengths of what is left to write, where the beginning is part of it."""
    begun = len(beginning_of(settings)) - 1
    return replace(
        settings,
        max_new_tokens=max(1, settings.max_new_tokens - begun),
        min_new_tokens=max(0, settings.min_new_tokens - begun),
    )
