"""Stopping rules and length penalties of beam search.

`ExactStopping` is the paper's (Wu et al. 2016, arXiv:1609.08144, section 7). `HuggingFaceStopping` is the rule of
`transformers`, for which the settings of pretrained models were chosen.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor

from headwise.contract import SearchOptions, length_penalty, power_penalty


@runtime_checkable
class StoppingRule(Protocol):
    """Length penalty and stopping of a beam search; `alpha` is the exponent of the penalty."""

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """The divisor of the log-probability of a hypothesis of this length."""
        ...

    def pool(self, beam_size: int, n_best: int) -> int:
        """The number of finished hypotheses to keep for a sentence."""
        ...

    def n_may_finish(self, beam_size: int, candidates: int) -> int:
        """How many of a step's best candidates may finish; lower-ranked ends are dropped."""
        ...

    def is_done(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """Which sentences are done; both matrices are sorted, best first, and -inf means none."""
        ...


@dataclass(frozen=True)
class ExactStopping:
    """Stops when no live hypothesis can overtake the results; the paper's penalty."""

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """See `length_penalty`."""
        return length_penalty(length, alpha)

    def pool(self, beam_size: int, n_best: int) -> int:
        """The number of results."""
        return n_best

    def n_may_finish(self, beam_size: int, candidates: int) -> int:
        """All of them."""
        return candidates

    def is_done(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """The best possible score of a live hypothesis is its log-probability over the penalty of the maximum length.

        Log-probabilities only fall, and the penalty only grows.
        """
        return live_log_probs.amax(1) / self.penalty(max_length, alpha) <= finished_scores[:, -1]


@dataclass(frozen=True)
class HuggingFaceStopping:
    """Stops when `beam_size` hypotheses have finished and, unless `early`, no live one has a better score.

    This is the rule of `transformers`. Scores are log P(Y|X) / |Y|^alpha. The score of a live hypothesis is estimated
    at its current length, or with `patient` at the maximum length if alpha > 0.

    Args:
        early: `early_stopping=True` of `transformers`.
        patient: `early_stopping="never"` of `transformers`.
        n_forced: forced tokens that the model reads before the search; they count as length.
    """

    early: bool = False
    patient: bool = False
    n_forced: int = 0

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """|Y|^alpha; a negative alpha favours short outputs."""
        return power_penalty(length + self.n_forced, alpha)

    def pool(self, beam_size: int, n_best: int) -> int:
        """The beam size."""
        return beam_size

    def n_may_finish(self, beam_size: int, candidates: int) -> int:
        """Only the best `beam_size` candidates."""
        return beam_size

    def is_done(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """See the class."""
        full = finished_scores[:, -1] > -torch.inf
        if self.early:
            return full
        reached = max_length if self.patient and alpha > 0 else length
        return full & (live_log_probs.amax(1) / self.penalty(reached, alpha) <= finished_scores[:, -1])


def stopping_rule(options: SearchOptions) -> StoppingRule:
    """The rule that `options.early_stopping` names."""
    if options.early_stopping == "exact":
        return ExactStopping()
    return HuggingFaceStopping(options.early_stopping == "yes", options.early_stopping == "never", options.n_forced)
