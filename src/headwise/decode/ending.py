"""When beam search has found what it looks for, and by what length a log-probability is divided.

`Unsurpassed` is the paper's (Wu et al. 2016, arXiv:1609.08144, section 7). Checkpoints in the Hugging Face layout come
with settings that were chosen for another rule, `PoolFilled`; by it they write what they were published with.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor

from headwise.contract import SearchOptions


def length_penalty(length: int | Tensor, alpha: float) -> Any:
    """lp(Y) = ((5 + |Y|) / 6)^alpha (arXiv:1609.08144, equation 14); |Y| counts the end mark.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return ((5 + length) / 6) ** alpha


@runtime_checkable
class Ending(Protocol):
    """What a search asks about finished hypotheses; `alpha` is the exponent of the penalty."""

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """What the log-probability of a hypothesis of that length is divided by."""
        ...

    def pool(self, beam_size: int, n_best: int) -> int:
        """How many finished hypotheses of a sentence are kept."""
        ...

    def counted(self, beam_size: int, candidates: int) -> int:
        """How many of a step's best candidates may finish; an end further down is dropped."""
        ...

    def settled(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """Which sentences are done; both matrices are sorted, the best first, and -inf stands for nothing."""
        ...


@dataclass(frozen=True)
class Unsurpassed:
    """Done when nothing alive can overtake what would be returned: the exact rule, and the paper's penalty."""

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """GNMT's."""
        return length_penalty(length, alpha)

    def pool(self, beam_size: int, n_best: int) -> int:
        """What is returned."""
        return n_best

    def counted(self, beam_size: int, candidates: int) -> int:
        """All: an end never narrows the beam, and none is missed."""
        return candidates

    def settled(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """A log-probability only falls and the penalty that divides it only grows, so the best that a live hypothesis
        can reach is its log-probability now over the penalty of the longest length.
        """
        return live_log_probs.amax(1) / self.penalty(max_length, alpha) <= finished_scores[:, -1]


@dataclass(frozen=True)
class PoolFilled:
    """Done when `beam_size` hypotheses have ended and, unless `early`, the best living one is no better now.

    That is how `transformers` searches. Scores are log P(Y|X) / |Y|^alpha. The estimate of what a living hypothesis may
    still reach is a guess where alpha > 0: its score at its present length, or with `patient` at the longest one.

    Args:
        early: do not wait for living ones at all.
        patient: see above.
        begun: tokens of each output that were given to the model before the search; they count as length.
    """

    early: bool = False
    patient: bool = False
    begun: int = 0

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """|Y|^alpha, which may be negative to favour short outputs."""
        return (length + self.begun) ** alpha

    def pool(self, beam_size: int, n_best: int) -> int:
        """As many as are searched with."""
        return beam_size

    def counted(self, beam_size: int, candidates: int) -> int:
        """An end counts only among the best `beam_size` candidates."""
        return beam_size

    def settled(
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


def ending_of(options: SearchOptions) -> Ending:
    """The rule that `options.ending` names."""
    if options.ending == "unsurpassed":
        return Unsurpassed()
    return PoolFilled(options.ending == "pool_filled_early", options.ending == "pool_filled_patient", options.begun)
