"""An encoder and a decoder write a text anew: a translation, a summary, an answer.

Sources to outputs, ids only. What a decoder is to begin with (its start mark, a forced language code) is read before
the search begins. A network in the compiled library's form (`network.prepared`) searches by itself, in threads;
anything else, and whatever is to stop at a string, is searched step by step with torch. Not here: languages and
prefixes (`languages`), sound (`transcribe`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sightline.contract import Hypothesis, Look, OwnSearch, SearchInSteps, SearchOptions, Stop
from sightline.decode.candidates import Candidates, CandidateTable
from sightline.decode.engine import in_threads
from sightline.decode.request import Bounds, not_finite
from sightline.decode.stepping import watch, written_in
from sightline.decode.steps import Start, step_of
from sightline.decode.watching import watched
from sightline.device import usable_threads
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
from sightline.generation.settings import GenerationSettings


def form_for(settings: GenerationSettings, forms: Callable[[str], Any]) -> Any:
    """What decodes with these settings: that of torch where outputs are to stop at a string."""
    if not settings.stop:
        return forms(settings.compute)
    if settings.compute != "float32":
        raise UserError(f"compute = {settings.compute} does not go together with `stop`: leave out one of them")
    return forms("torch")


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
        network: an `OwnSearch`, or with the contract of a `Transformer`.
        sources: token ids with all marks of their family, at least one each.
        max_len: the longest output the decoder can write, where it has a limit (learned positions).
        stop: says which rows are to end; for a network of torch.
        offered: the shortlist; None = the whole vocabulary.

    Raises:
        UserError: the checkpoint does not say what its decoder begins with, or gives numbers that are not finite.
    """
    if isinstance(network, OwnSearch):
        assert stop is None, "the library calls no Python"
        return _rewrite_compiled(network, sources, settings, max_len, offered)
    beginning, device = beginning_of(settings), next(network.parameters()).device
    room = None if max_len is None else max_len - len(beginning) + 1
    options = options_of(settings, stop)
    settings_left = without_beginning(settings)

    def work(batch: list[Sequence[int]]) -> list[list[Hypothesis]]:
        limits, streams = limits_of([room] * len(batch), settings_left, device), streams_of(batch)
        if offered is not None:
            allowed = offered.allowed(batch, [beginning] * len(batch), _marks(settings))
            limits = replace(limits, barred=~torch.from_numpy(allowed).to(device))
        step, prompts = step_of(network), torch.tensor([beginning] * len(batch), device=device)
        begun = begin(step, _cache_of(network, batch, settings), prompts)
        return search(step, begun, limits, options, settings, streams)

    return in_batches(sources, settings.batch_size, work)


def _rewrite_compiled(
    network: OwnSearch,
    sources: Sequence[Sequence[int]],
    settings: GenerationSettings,
    max_len: int | None,
    offered: CandidateTable | None,
) -> list[list[Hypothesis]]:
    """By the network's own search, in threads; the threads share what is less than a batch for each."""
    stop = np.zeros(1, np.int32)

    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        return network.search(*_asked([sources[i] for i in batch], settings, max_len, offered), stop)

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


def begin_rewriting(
    network: OwnSearch, source: Sequence[int], settings: GenerationSettings, max_len: int | None = None
) -> SearchInSteps:
    """The search of one source, before its first step; it writes what outputs begin with, too."""
    return network.begin(*_asked([source], settings, max_len, None))


def _asked(
    sources: Sequence[Sequence[int]],
    settings: GenerationSettings,
    max_len: int | None,
    offered: CandidateTable | None,
) -> tuple[Any, Bounds, SearchOptions, Candidates | None]:
    """What a model's own search is asked."""
    ngram, few = settings.no_repeat_ngram, None
    options = replace(options_of(settings), rules=(), no_repeat_ngram=ngram, start_counts=True)
    if offered is not None:
        few = offered.candidates(sources, [beginning_of(settings)] * len(sources), _marks(settings))
    return sources, _bounds(sources, settings, max_len), options, few


def _marks(settings: GenerationSettings) -> list[int]:
    """What outputs may end with, whatever the source."""
    return [*settings.end_ids, *([] if settings.forced_end_id is None else [settings.forced_end_id])]


def _bounds(sources: Sequence[Sequence[int]], settings: GenerationSettings, max_len: int | None) -> Bounds:
    """Of outputs with what they begin with behind the start mark, which stands before what is written."""
    rows, streams = len(sources), np.array(streams_of(sources), np.int64) if settings.sample else None
    forced = beginning_of(settings)[1:]
    longest = max(len(forced) + 1, min(settings.max_new_tokens, max_len or settings.max_new_tokens))
    shortest = min(max(settings.min_new_tokens, len(forced)), longest - 1) if settings.end_ids else 0
    return Bounds(np.full(rows, shortest), np.full(rows, longest), np.array([forced] * rows, np.int64), streams)


@torch.inference_mode()
def stream_rewrite(
    network: Any, source: Sequence[int], settings: GenerationSettings, max_len: int | None = None
) -> Iterator[int]:
    """The tokens made of one source, one by one, without the end mark."""
    if isinstance(network, OwnSearch):
        begun = len(beginning_of(settings)) - 1
        tokens = (best.token for best in written_in(begin_rewriting(network, source, settings, max_len)))
        yield from (token for token in islice(tokens, begun, None) if token not in settings.end_ids)
        return
    start, options = start_rewriting(network, source, settings, max_len)
    yield from stream(step_of(network), start.cache, start.limits, options, settings, *streams_of([source]))


def watch_rewriting(
    network: Any, source: Sequence[int], settings: GenerationSettings, max_len: int | None, look: Look
) -> Hypothesis:
    """The best output for one source, with what it begins with in front, while `look` is shown each step."""
    if isinstance(network, OwnSearch):
        return with_beginning(watch(begin_rewriting(network, source, settings, max_len), look), settings)
    return with_beginning(watched(*start_rewriting(network, source, settings, max_len), look), settings)


def start_rewriting(
    network: Any, source: Sequence[int], settings: GenerationSettings, max_len: int | None = None
) -> tuple[Start, SearchOptions]:
    """The search of one source, with all marks of its family, before its first step."""
    beginning, device = beginning_of(settings), next(network.parameters()).device
    room = None if max_len is None else max_len - len(beginning) + 1
    limits = limits_of([room], without_beginning(settings), device)
    step, prompts = step_of(network), torch.tensor([beginning], device=device)
    begun = begin(step, _cache_of(network, [source], settings), prompts)
    return Start(after_prompts(step), begun, limits, tuple(beginning[1:])), options_of(settings)


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
