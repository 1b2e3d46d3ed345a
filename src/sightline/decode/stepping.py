"""A search advanced step by step, for those who watch it."""

import math
from collections.abc import Iterator, Sequence

from sightline.config.settings import SearchSettings
from sightline.contract import (
    Continuation,
    EncoderDecoder,
    Hypothesis,
    Look,
    OwnSearch,
    SearchInSteps,
    SpecialIds,
)
from sightline.decode.candidates import CandidateTable
from sightline.decode.engine import begin
from sightline.decode.request import Asked, not_finite


def stream_tokens(
    model: EncoderDecoder | OwnSearch,
    source: Sequence[int],
    config: SearchSettings,
    special: SpecialIds,
    prefix: Sequence[int] = (),
    max_len: int | None = None,
    shortlist: CandidateTable | None = None,
) -> Iterator[int]:
    """The tokens of greedy search for one source, one by one, without the end mark; arguments as `decode_tokens`."""
    asked = Asked([source], [prefix], config, special, max_len, shortlist)
    if not isinstance(model, OwnSearch):
        from sightline.decode.watching import greedy_by_steps  # brings torch

        return greedy_by_steps(model, asked)
    search = begin(model, asked)
    return (best.token for best in written_in(search) if best.token != special.eos_id)


def watch(search: SearchInSteps, look: Look) -> Hypothesis:
    """The best of what a search finds, while `look` is shown each step."""
    while steps := search.advance():
        look(steps[0])
    (ranked,) = search.found()
    if not (ranked and math.isfinite(ranked[0].log_prob)):
        raise not_finite()
    return ranked[0]


def written_in(search: SearchInSteps) -> Iterator[Continuation]:
    """What a greedy search writes, or one that draws, step by step."""
    while steps := search.advance():
        yield certain(steps[0])


def certain(ranked: list[Continuation]) -> Continuation:
    """The only continuation there is in greedy search; a `UserError` where that is none or no number."""
    if not (ranked and math.isfinite(ranked[0].token_log_prob)):
        raise not_finite()
    return ranked[0]
