"""Generation from prompts of token ids in torch: prefill, then the search of `headwise.runtime.search`.

The prompt of a decoder-only model is its input; that of an encoder-decoder is the start of its output.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.contract import Hypothesis, Limits, SearchOptions
from headwise.core.extensions.sampling import sample
from headwise.core.search import Step, beam_search
from headwise.models.language.limits import output_bounds
from headwise.pytorch.search.stepwise import to_torch
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.search.request import non_finite_error


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


def search(step: Step, prefilled: Prefilled, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """The hypotheses of each row, best first; samples if the limits have `streams`."""
    algorithm = beam_search if limits.streams is None else sample
    found = algorithm(step_after_prefill(step), prefilled, limits, options)
    if not all(ranked and math.isfinite(ranked[0].log_prob) for ranked in found):
        raise non_finite_error()
    return found


def output_limits(
    room: Sequence[int | None], config: GenerationConfig, prompts: Sequence[Sequence[int]], device: torch.device
) -> Limits:
    """`limits.output_bounds` for torch."""
    return to_torch(output_bounds(room, config, prompts), device)
