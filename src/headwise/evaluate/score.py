"""Probabilities that a model gives to translations written by somebody else; `models.translation.pair_inspector`
computes them.

Metrics that compare text with text are in `bleu.py`. All logarithms are natural. The end token is part of every
target, so an empty target has a score too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

SCORED_TOGETHER = 1000  # pairs that share batches: a part of a text is scored as in the whole, to the last bit


@dataclass(frozen=True)
class PairScore:
    """Log-probabilities of one pair."""

    token_log_probs: list[float]
    """log p(token | source, tokens before it), for each target token and for the end token."""

    @property
    def log_prob(self) -> float:
        """log p(target | source)."""
        return math.fsum(self.token_log_probs)

    @property
    def perplexity(self) -> float:
        """The perplexity of this pair; 1 is certainty.

        >>> PairScore([math.log(0.5), math.log(0.125)]).perplexity
        4.0
        """
        return _perplexity(self.log_prob, len(self.token_log_probs))


def corpus_perplexity(scores: Sequence[PairScore]) -> float:
    """Over all target tokens, end tokens included: exp(-sum of log-probabilities / number of tokens).

    Two models compare only if they have the same tokenizer.
    """
    n_tokens = sum(len(score.token_log_probs) for score in scores)
    return _perplexity(math.fsum(score.log_prob for score in scores), n_tokens)


def _perplexity(log_prob: float, n_tokens: int) -> float:
    """Infinite where the exponential no longer fits into a float."""
    entropy = -log_prob / n_tokens
    return math.exp(entropy) if entropy < 709 else math.inf
