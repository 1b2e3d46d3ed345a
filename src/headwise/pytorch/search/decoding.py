"""Generation from prompts of token ids in torch: prefill, then the search of `headwise.runtime.search`.

The prompt of a decoder-only model is its input; that of an encoder-decoder is the start of its output.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.contract import Hypothesis, SearchOptions
from headwise.core.extensions.sampling import sample
from headwise.core.search import Limits, Step, beam_search
from headwise.models.language.limits import output_bounds
from headwise.pytorch.search.stepwise import stream_tokens
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.search.request import Bounds, non_finite_error


@dataclass
class Prefilled:
    """The cache of a decoder after its prompts, and the logits for the next token until the search has used them."""

    cache: Any
    logits: Float[Tensor, "rows vocab"] | None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Replace row i by row index[i]."""
        self.cache.reorder(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats."""
        self.cache.select(index)
        if self.logits is not None:
            self.logits = self.logits.index_select(0, index)


def prefill(step: Step, cache: Any, prompts: Int[Tensor, "rows length"]) -> Prefilled:
    """Process the prompts in one pass."""
    return Prefilled(cache, step(prompts, cache))


def step_after_prefill(step: Step) -> Step:
    """A step over `Prefilled`; the first call returns its logits, whatever the tokens."""

    def next_logits(tokens: Int[Tensor, "rows new"], prefilled: Prefilled) -> Float[Tensor, "rows vocab"]:
        if prefilled.logits is None:
            return step(tokens, prefilled.cache)
        logits, prefilled.logits = prefilled.logits, None
        return logits

    return next_logits


def search(
    step: Step, prefilled: Prefilled, limits: Limits, options: SearchOptions, sampled: bool, streams: Sequence[int]
) -> list[list[Hypothesis]]:
    """The hypotheses of each row, best first; `streams` are the numbers of their random streams."""
    if sampled:
        numbers = torch.tensor(streams, device=limits.max_length.device)
        found = sample(step_after_prefill(step), prefilled, limits, options, numbers)
    else:
        found = beam_search(step_after_prefill(step), prefilled, limits, options)
    if not all(ranked and math.isfinite(ranked[0].log_prob) for ranked in found):
        raise non_finite_error()
    return found


def stream(
    step: Step, prefilled: Prefilled, limits: Limits, options: SearchOptions, sampled: bool, streams: Sequence[int]
) -> Iterator[int]:
    """The tokens of one row, greedy or sampled, one by one."""
    numbers = np.array(streams) if sampled else None
    yield from stream_tokens(step_after_prefill(step), prefilled, limits, options, numbers)


def output_limits(
    room: Sequence[int | None], config: GenerationConfig, prompts: Sequence[Sequence[int]], device: torch.device
) -> Limits:
    """`limits.output_bounds` for torch."""
    return limits_of(output_bounds(room, config, prompts), device)


def limits_of(bounds: Bounds, device: torch.device) -> Limits:
    """The same limits for torch."""
    context = None if bounds.context is None else torch.from_numpy(bounds.context.copy())
    own = map(torch.from_numpy, (bounds.min_length, bounds.max_length, bounds.prefix))
    return Limits(*own, context=context).to(device)
