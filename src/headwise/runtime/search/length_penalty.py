"""The number by which beam search divides the log-probability of a hypothesis; works for torch tensors, too."""

from collections.abc import Callable
from typing import Any

from headwise.contract import SearchOptions


def length_penalty(length: Any, alpha: float) -> Any:
    """lp(Y) = ((5 + |Y|) / 6)^alpha (arXiv:1609.08144, equation 14); |Y| includes the end token.

    >>> length_penalty(1, 0.6), length_penalty(7, 1.0)
    (1.0, 2.0)
    """
    return ((5 + length) / 6) ** alpha


def power_penalty(length: Any, alpha: float) -> Any:
    """|Y|^alpha, as in `transformers`; a negative alpha favours short outputs."""
    return length**alpha


def penalty_of(options: SearchOptions) -> Callable[[int, float], Any]:
    """The penalty that belongs to the stopping rule of a search; lengths without the start tokens."""
    if options.early_stopping == "exact":
        return length_penalty
    return lambda length, alpha: power_penalty(length + options.n_forced, alpha)
