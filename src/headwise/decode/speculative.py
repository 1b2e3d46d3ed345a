"""Greedy search that guesses ahead: a draft proposes the next tokens, one step of the model checks them all.

Speculative decoding (arXiv:2211.17192) for one sentence at a time, in its lossless greedy form: a guess is kept only
where the model itself would have written it, so the output is that of greedy search, in fewer steps. It pays where a
step for a few positions costs hardly more than for one, that is for single sentences and not for batches.

Not here: where guesses come from (`drafts`).
"""

from collections.abc import Iterator, Sequence

from headwise.contract import Continuation, Draft, Guess, Hypothesis, SearchEngine, SearchInSteps
from headwise.decode.engine import begin
from headwise.decode.request import SearchRequest
from headwise.decode.stepping import certain
from headwise.errors import UserError


def check_speculation(request: SearchRequest) -> None:
    """Raise a `UserError` for settings under which guesses cannot be checked without loss."""
    settings = request.settings
    if settings.sample or settings.beam_size > 1:
        raise UserError("a draft is for greedy search: leave out sample, and set beam_size to 1")
    if settings.shortlist or request.shortlist:
        raise UserError("a draft and a shortlist do not go together: leave out one of them")
    if settings.stop or request.special.other_ends:
        raise UserError("a draft is for outputs that end with one mark: leave out stop, or the draft")


def cannot_step_back() -> UserError:
    """What to raise for a model whose cache has no `truncate`."""
    return UserError("a draft is for Transformers: the caches of other architectures cannot take steps back")


def speculative_search(engine: SearchEngine, request: SearchRequest, draft: Draft) -> list[list[Hypothesis]]:
    """The hypotheses of greedy search, as `engine.execute` gives them, one source after the other."""
    found = []
    for i, source in enumerate(request.sources):
        one = request.of([i])
        check_speculation(one)
        if not source:
            found.append([Hypothesis([], 0.0, 0.0, [])])
            continue
        search = begin(engine, one)
        for _ in _verified(search, one, draft):
            pass
        found += search.found()
    return found


def speculate(engine: SearchEngine, request: SearchRequest, draft: Draft) -> Iterator[Continuation]:
    """The steps of greedy search for the only source of a request, the end mark's included, as soon as each is certain.

    Raises:
        UserError: the settings ask for more than greedy search, the model cannot take steps back, or its predictions
            are not finite.
    """
    check_speculation(request)
    if request.sources[0]:
        yield from _verified(begin(engine, request), request, draft)


def _verified(search: SearchInSteps, request: SearchRequest, draft: Draft) -> Iterator[Continuation]:
    if not getattr(search, "steps_back", True):
        raise cannot_step_back()
    begun = len(request.special.forced)
    prefix = [*request.special.forced, *request.prefixes[0]]
    guess, count = draft.start(request.sources[0]), request.settings.draft_length
    written: list[int] = []
    while steps := search.advance(_guesses(guess, written, begun, count, prefix)):
        for best in map(certain, steps):
            written.append(best.token)
            if len(written) > begun:
                yield best


def _guesses(guess: Guess, written: Sequence[int], begun: int, count: int, prefix: Sequence[int]) -> list[int]:
    """What is proposed next; inside a forced prefix, the prefix itself."""
    forced = list(prefix[len(written) : len(written) + count])
    return forced or list(guess(written[begun:], count))[:count]
