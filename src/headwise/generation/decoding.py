"""From prompts that a decoder has read to what it writes: rows of one batch through the search of `headwise.decode`.

Ids only. A decoder alone reads its prompts, one with an encoder reads what its outputs begin with. Not here: text, and
where prompts come from (`text`, `rewrite`, `transcribe`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.checkpoint.generation_config import GenerationConfig
from headwise.contract import Hypothesis, SearchOptions
from headwise.decode.constraints import Limits
from headwise.decode.request import not_finite, random_stream
from headwise.decode.sampling import sample
from headwise.decode.search import Step, beam_search
from headwise.decode.stepwise import written_by_steps


@dataclass
class Begun:
    """The cache of a decoder that has read its prompts, and its logits after them until the search asks for them."""

    cache: Any
    logits: Float[Tensor, "rows vocab"] | None

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row index[i] was."""
        self.cache.reorder(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats."""
        self.cache.select(index)
        if self.logits is not None:
            self.logits = self.logits.index_select(0, index)


def begin_generation(step: Step, cache: Any, prompts: Int[Tensor, "rows length"]) -> Begun:
    """Let the decoder read what stands before its outputs, all at once."""
    return Begun(cache, step(prompts, cache))


def after_prompts(step: Step) -> Step:
    """A step over `Begun`, whose first call needs no token: what follows the prompts is known already."""

    def next_logits(tokens: Int[Tensor, "rows new"], begun: Begun) -> Float[Tensor, "rows vocab"]:
        if begun.logits is None:
            return step(tokens, begun.cache)
        logits, begun.logits = begun.logits, None
        return logits

    return next_logits


def search(
    step: Step, begun: Begun, limits: Limits, options: SearchOptions, sampled: bool, streams: Sequence[int]
) -> list[list[Hypothesis]]:
    """The hypotheses of each row, best first; `streams` numbers the random stream of each."""
    if sampled:
        numbers = torch.tensor(streams, device=limits.max_length.device)
        found = sample(after_prompts(step), begun, limits, options, numbers)
    else:
        found = beam_search(after_prompts(step), begun, limits, options)
    if not all(ranked and math.isfinite(ranked[0].log_prob) for ranked in found):
        raise not_finite()
    return found


def stream(
    step: Step, begun: Begun, limits: Limits, options: SearchOptions, sampled: bool, streams: Sequence[int]
) -> Iterator[int]:
    """The tokens of one row, greedy or sampled, as soon as each is certain."""
    numbers = np.array(streams) if sampled else None
    yield from written_by_steps(after_prompts(step), begun, limits, options, numbers)


# --- What rows may write ---


def limits_of(room: Sequence[int | None], config: GenerationConfig, device: torch.device) -> Limits:
    """Shortest and longest outputs behind what rows begin with, which counts as written.

    `room` is how many positions the model has left for each, None = any number.
    """
    begun, settings = len(config.special.forced), config.settings
    most, least = max(1, settings.max_length_extra - begun), max(0, settings.min_length_extra - begun)
    longest = [most if there is None else min(most, there) for there in room]
    shortest = [min(least, length - 1) if config.can_end else 0 for length in longest]
    nothing = torch.zeros(len(room), 0, dtype=torch.long)
    return Limits(torch.tensor(shortest), torch.tensor(longest), nothing).to(device)


# --- Batches ---


def in_batches(
    inputs: Sequence[Sequence[int]],
    batch_size: int,
    work: Callable[[list[Sequence[int]]], list[list[Hypothesis]]],
) -> list[list[Hypothesis]]:
    """What `work` makes of each input, in order; it is given batches of inputs of similar length, the longest first."""
    order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]))
    found: list[list[Hypothesis]] = [[] for _ in inputs]
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        for i, hypotheses in zip(batch, work([inputs[i] for i in batch]), strict=True):
            found[i] = hypotheses
    return found


def streams_of(inputs: Sequence[Sequence[int]]) -> list[int]:
    """The number of each input's random stream: a hash of its tokens, so that it is the same in any batch."""
    return [random_stream(tokens) for tokens in inputs]
