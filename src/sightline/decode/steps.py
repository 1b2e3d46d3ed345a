"""Decoding step by step with torch: pad a batch, encode it, and search with the model's steps.

For every model that does not search by itself, and for what such a search cannot do. Not here: which batches there are
(`engine`) and the search itself (`search`), which this module hands a step function.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.contract import EncoderDecoder, Hypothesis, SpecialIds
from sightline.decode.constraints import Limits
from sightline.decode.request import (
    Asked,
    Results,
    batches,
    bounds,
    less_memory,
    one_by_one,
    random_stream,
    search_options,
)
from sightline.decode.search import Step, beam_search


def decode_by_steps(model: EncoderDecoder, asked: Asked) -> Results:
    """Each batch with its hypotheses."""

    @torch.inference_mode()
    @_memory_errors()
    def decode(batch: list[int]) -> list[list[Hypothesis]]:
        return _search(model, asked.of(batch))

    waiting = batches([len(source) for source in asked.sources], asked.config)
    with evaluating(model):
        yield from one_by_one(decode, waiting, less_memory(asked.config))


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside, the model is in evaluation mode: without dropout."""
    was_training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def _memory_errors() -> Iterator[None]:
    """What torch raises where a device's memory, or this machine's, has run out becomes a `MemoryError`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        elif "can't allocate memory" not in str(error):
            raise
        raise MemoryError(str(error)) from error


@dataclass(frozen=True)
class Start:
    """Everything a search needs for some sources."""

    step: Step
    cache: Any
    limits: Limits
    begun: Sequence[int] = ()  # what the output begins with: the cache has read it, and the search does not find it


def start_decoding(model: EncoderDecoder, asked: Asked) -> Start:
    """Encode the sources, and apply the shortlist if there is one."""
    device = next(model.parameters()).device
    src, src_mask = (x.to(device) for x in pad_sources(asked.sources, asked.special))
    limits = to_limits(asked).to(device)
    cache = model.start_cache(model.encode(src, src_mask), src_mask)
    if asked.shortlist is not None:
        allowed = torch.from_numpy(asked.shortlist.allowed(*asked.listed()))
        limits = replace(limits, barred=~allowed.to(device))
    return Start(step_of(model), cache, limits)


def _search(model: EncoderDecoder, asked: Asked) -> list[list[Hypothesis]]:
    start, options = start_decoding(model, asked), search_options(asked.config, asked.special)
    if start.limits.phrases is not None:
        from sightline.decode.phrases import phrase_search  # which most translations do without

        return phrase_search(start.step, start.cache, start.limits, options)
    if not asked.config.sample:
        return beam_search(start.step, start.cache, start.limits, options)
    from sightline.decode.sampling import sample

    streams = torch.tensor([random_stream(source) for source in asked.sources], device=start.limits.max_length.device)
    return sample(start.step, start.cache, start.limits, options, streams)


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


def to_limits(asked: Asked) -> Limits:
    """`engine.bounds` as tensors."""
    found = bounds(asked)
    phrases = torch.from_numpy(found.phrases) if found.phrases.size else None
    return Limits(*map(torch.from_numpy, (found.min_length, found.max_length, found.prefix)), phrases=phrases)
