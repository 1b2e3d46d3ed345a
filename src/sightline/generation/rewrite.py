"""An encoder and a decoder write a text anew: a translation, a summary, an answer.

Sources to outputs, ids only. What a decoder is to begin with (its start mark, a forced language code) is read before
the search begins. Not here: languages and prefixes (`languages`), sound (`transcribe`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sightline.decode.search import Hypothesis, Rule, SearchOptions, Stop
from sightline.decode.steps import step_of
from sightline.errors import UserError
from sightline.generation.decoding import (
    Begun,
    always_ended,
    begin,
    in_batches,
    limits_of,
    no_repeat,
    not_first,
    search,
    stream,
    streams_of,
)
from sightline.generation.settings import GenerationSettings
from sightline.network.networks import EncoderDecoder


@torch.inference_mode()
def rewrite(
    network: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    settings: GenerationSettings,
    max_len: int | None = None,
    stop: Stop | None = None,
) -> list[list[Hypothesis]]:
    """What the network makes of each source, best first, in the order of the sources.

    Args:
        sources: token ids with all marks of their family, at least one each.
        max_len: the longest output the decoder can write, where it has a limit (learned positions).
        stop: says which rows are to end.

    Raises:
        UserError: the checkpoint does not say what its decoder begins with, or gives numbers that are not finite.
    """
    beginning, device = beginning_of(settings), next(network.parameters()).device
    room = None if max_len is None else max_len - len(beginning) + 1
    options = options_of(settings, beginning, stop)
    settings_left = _without_beginning(settings)

    def work(batch: list[Sequence[int]]) -> list[list[Hypothesis]]:
        limits = limits_of([room] * len(batch), settings_left, device)
        begun = _begun(network, batch, settings, beginning)
        return search(step_of(network), begun, limits, options, settings, streams_of(batch))

    return in_batches(sources, settings.batch_size, work)


@torch.inference_mode()
def stream_rewrite(
    network: EncoderDecoder, source: Sequence[int], settings: GenerationSettings, max_len: int | None = None
) -> Iterator[int]:
    """The tokens made of one source, one by one, without the end mark."""
    beginning, device = beginning_of(settings), next(network.parameters()).device
    room = None if max_len is None else max_len - len(beginning) + 1
    limits = limits_of([room], _without_beginning(settings), device)
    options = options_of(settings, beginning)
    begun = _begun(network, [source], settings, beginning)
    yield from stream(step_of(network), begun, limits, options, settings, *streams_of([source]))


def _begun(
    network: EncoderDecoder, sources: Sequence[Sequence[int]], settings: GenerationSettings, beginning: list[int]
) -> Begun:
    """Read the sources, and what outputs begin with."""
    device = next(network.parameters()).device
    src, mask = (x.to(device) for x in pad_right(sources, settings.pad_id))
    cache = network.start_cache(network.encode(src, mask), mask)
    return begin(step_of(network), cache, torch.tensor([beginning] * len(sources), device=device))


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
    """The start mark, and what is forced behind it."""
    if settings.start_id is None:
        raise UserError("neither config.json nor generation_config.json has a decoder_start_token_id")
    return [settings.start_id, *([] if settings.forced_start_id is None else [settings.forced_start_id])]


def options_of(settings: GenerationSettings, beginning: list[int], stop: Stop | None = None) -> SearchOptions:
    """For the search; what is forced behind the start mark counts as written."""
    begun, n = len(beginning) - 1, settings.no_repeat_ngram
    rules: list[Rule] = [not_first(settings.suppressed_first)] if settings.suppressed_first else []
    rules += [no_repeat(n, beginning)] if n else []
    if settings.forced_end_id is not None:
        rules.append(always_ended(settings.forced_end_id, max(1, settings.max_new_tokens - begun)))
    return replace(settings, no_repeat_ngram=0).options(begun, tuple(rules), stop)


def _without_beginning(settings: GenerationSettings) -> GenerationSettings:
    """Lengths of what is left to write, where the beginning is part of it."""
    begun = len(beginning_of(settings)) - 1
    return replace(
        settings,
        max_new_tokens=max(1, settings.max_new_tokens - begun),
        min_new_tokens=max(0, settings.min_new_tokens - begun),
    )
