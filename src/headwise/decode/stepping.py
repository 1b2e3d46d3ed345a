"""A search advanced step by step, for those who watch it."""

import math
from collections.abc import Iterator

from headwise.contract import Continuation, Hypothesis, Look, SearchInSteps
from headwise.decode.request import not_finite


def watch(search: SearchInSteps, look: Look) -> Hypothesis:
    """The best of what a search finds, while `look` is shown each step."""
    while steps := search.advance():
        look(steps[0])
    (ranked,) = search.found()
    if not (ranked and math.isfinite(ranked[0].log_prob)):
        raise not_finite()
    return ranked[0]


def written_in(search: SearchInSteps) -> Iterator[Continuation]:
    """What a greedy search writes, or one that samples, step by step."""
    while steps := search.advance():
        yield certain(steps[0])


def certain(ranked: list[Continuation]) -> Continuation:
    """The only continuation there is in greedy search; a `UserError` where that is none or no number."""
    if not (ranked and math.isfinite(ranked[0].token_log_prob)):
        raise not_finite()
    return ranked[0]
