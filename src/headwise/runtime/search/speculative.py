"""Speculative decoding (arXiv:2211.17192) in its lossless greedy form, for one sentence at a time.

A draft proposes the next tokens, and one step of the model checks all of them. Only tokens that greedy search would
have chosen are kept, so the output is the same, in fewer steps. It pays where a step for several positions costs little
more than for one: for single sentences, not for batches. Drafts are in `drafts`.
"""

from collections.abc import Iterator, Sequence

from headwise.contract import Continuation, Draft, Guess, Hypothesis, SearchEngine, StepwiseSearch
from headwise.errors import UserError
from headwise.runtime.search.engine import begin, only_continuation
from headwise.runtime.search.request import SearchRequest


def check_speculation(request: SearchRequest) -> None:
    """Raise a `UserError` for settings that speculative decoding does not support."""
    settings = request.settings
    if settings.sample or settings.beam_size > 1:
        raise UserError("a draft is for greedy search: leave out sample, and set beam_size to 1")
    if settings.shortlist or request.shortlist:
        raise UserError("a draft and a shortlist do not go together: leave out one of them")
    if settings.stop or request.special.other_ends:
        raise UserError("a draft is for outputs with a single end token: leave out stop, or the draft")


def cannot_truncate() -> UserError:
    """The error for a model whose cache has no `truncate`."""
    return UserError("a draft is for Transformers: the caches of other architectures cannot be truncated")


def speculative_search(engine: SearchEngine, request: SearchRequest, draft: Draft) -> list[list[Hypothesis]]:
    """The hypotheses of greedy search, as from `engine.execute`, one source after another."""
    hypotheses = []
    for i, source in enumerate(request.sources):
        one = request.of([i])
        check_speculation(one)
        if not source:
            hypotheses.append([Hypothesis([], 0.0, 0.0, [])])
            continue
        search = begin(engine, one)
        for _ in _verified(search, one, draft):
            pass
        hypotheses += search.hypotheses()
    return hypotheses


def speculate(engine: SearchEngine, request: SearchRequest, draft: Draft) -> Iterator[Continuation]:
    """The steps of greedy search for the only source of a request, including the end token, as soon as each is
    verified.

    Raises:
        UserError: the search is not greedy, the model's cache cannot be truncated, or its outputs are not finite.
    """
    check_speculation(request)
    if request.sources[0]:
        yield from _verified(begin(engine, request), request, draft)


def _verified(search: StepwiseSearch, request: SearchRequest, draft: Draft) -> Iterator[Continuation]:
    if not getattr(search, "can_truncate", True):
        raise cannot_truncate()
    n_forced = len(request.special.forced)
    prefix = [*request.special.forced, *request.prefixes[0]]
    guess, count = draft.start(request.sources[0]), request.settings.draft_length
    written: list[int] = []
    while steps := search.advance(_guesses(guess, written, n_forced, count, prefix)):
        for best in map(only_continuation, steps):
            written.append(best.token)
            if len(written) > n_forced:
                yield best


def _guesses(guess: Guess, written: Sequence[int], n_forced: int, count: int, prefix: Sequence[int]) -> list[int]:
    """The next tokens to propose; inside a forced prefix, its tokens."""
    forced = list(prefix[len(written) : len(written) + count])
    return forced or list(guess(written[n_forced:], count))[:count]
