"""Greedy search that guesses ahead: a draft proposes the next pieces, one step of the model checks them all.

Speculative decoding (arXiv:2211.17192) for one sentence at a time, in its lossless greedy form: a guess is kept only
where the model itself would have written it, so the output is that of greedy search, in fewer steps. It pays where a
step for a few positions costs hardly more than for one, that is for single sentences and not for batches.

Not here: where guesses come from (`drafts`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sightline.config.settings import SearchSettings
from sightline.contract import (
    Draft,
    EncoderDecoder,
    Guess,
    Hypothesis,
    OwnSearch,
    SearchInSteps,
    SearchOptions,
    SpecialIds,
)
from sightline.decode.constraints import Limits
from sightline.decode.ending import length_penalty
from sightline.decode.engine import begin
from sightline.decode.ranking import highest
from sightline.decode.request import Asked, not_finite, search_options
from sightline.decode.search import allowed_log_probs
from sightline.decode.stepping import certain
from sightline.decode.steps import start_decoding
from sightline.errors import UserError


def check_speculation(config: SearchSettings) -> None:
    """Raise a `UserError` for settings under which guesses cannot be checked without loss."""
    if config.sample or config.beam_size > 1:
        raise UserError("a draft is for greedy search: leave out sample, and set beam_size to 1")
    if config.shortlist:
        raise UserError("a draft and a shortlist do not go together: leave out one of them")


def cannot_step_back() -> UserError:
    """What to raise for a model whose cache has no `truncate`."""
    return UserError("a draft is for Transformers: the caches of other architectures cannot take steps back")


def speculative_search(
    model: EncoderDecoder | OwnSearch,
    source: Sequence[int],
    draft: Draft,
    config: SearchSettings,
    special: SpecialIds,
    prefix: Sequence[int] = (),
    max_len: int | None = None,
) -> Hypothesis:
    """The hypothesis of greedy search for one source; arguments as `engine.decode_tokens`."""
    tokens: list[int] = []
    log_probs: list[float] = []
    for token, log_prob in speculate(model, source, draft, config, special, prefix, max_len):
        log_probs.append(log_prob)
        if token != special.eos_id:
            tokens.append(token)
    total = sum(log_probs)
    score = total / length_penalty(len(log_probs), config.length_penalty) if log_probs else 0.0
    return Hypothesis(tokens, score, total, log_probs)


def speculate(
    model: EncoderDecoder | OwnSearch,
    source: Sequence[int],
    draft: Draft,
    config: SearchSettings,
    special: SpecialIds,
    prefix: Sequence[int] = (),
    max_len: int | None = None,
) -> Iterator[tuple[int, float]]:
    """The tokens of greedy search with their log-probabilities, the end mark included, as soon as they are certain.

    Raises:
        UserError: the settings ask for more than greedy search, the model cannot take steps back, or its predictions
            are not finite.
    """
    check_speculation(config)
    if not source:
        return
    if isinstance(model, OwnSearch):
        search = begin(model, Asked([source], [prefix], config, special, max_len))
        yield from verify_in(search, draft.start(source), config.draft_length, prefix)
        return
    with torch.inference_mode():
        start = start_decoding(model, Asked([source], [prefix], config, special, max_len))
    options = search_options(config, special)
    yield from verify(model, start.cache, start.limits, options, draft.start(source), config.draft_length, prefix)


def verify_in(
    search: SearchInSteps, guess: Guess, draft_length: int, prefix: Sequence[int] = (), begun: int = 0
) -> Iterator[tuple[int, float]]:
    """`verify` by a model's own search, which begins with `prefix`; the first `begun` of it are not what is written."""
    written: list[int] = []
    while steps := search.advance(_guesses(lambda said, n: guess(said[begun:], n), written, draft_length, prefix)):
        for best in map(certain, steps):
            written.append(best.token)
            if len(written) > begun:
                yield best.token, best.token_log_prob


def verify(
    model: Any,
    cache: Any,
    limits: Limits,
    options: SearchOptions,
    guess: Guess,
    draft_length: int,
    prefix: Sequence[int] = (),
    read: int = 0,
) -> Iterator[tuple[int, float]]:
    """`speculate` from a cache that has read the source, and `read` pieces of what stands before `options.bos_id`."""
    if not hasattr(cache, "truncate"):
        raise cannot_step_back()
    written: list[int] = []
    while True:
        room = int(limits.max_length) - len(written)
        guesses = _guesses(guess, written, min(draft_length, room - 1), prefix)
        fed = torch.tensor([[written[-1] if written else options.bos_id, *guesses]]).to(limits.max_length)
        with torch.inference_mode():
            right = _check(model, cache, fed, written, limits, options)
        yield from right
        written += [token for token, _ in right]
        if written[-1] == options.eos_id or len(written) >= int(limits.max_length):
            return
        cache.truncate(read + len(written))


def _guesses(guess: Guess, written: list[int], count: int, prefix: Sequence[int]) -> list[int]:
    """What is proposed next; inside a forced prefix, the prefix itself."""
    forced = list(prefix[len(written) : len(written) + count])
    return forced or list(guess(written, count))[: max(0, count)]


def _check(
    model: EncoderDecoder,
    cache: Any,
    fed: Int[Tensor, "1 new"],
    written: list[int],
    limits: Limits,
    options: SearchOptions,
) -> list[tuple[int, float]]:
    """What greedy search writes from here: the guesses it agrees with, and one token more."""
    logits = model.logits(model.decode(fed, cache.memory, cache.src_mask, cache)[0])
    right: list[tuple[int, float]] = []
    for place, guessed in enumerate([*fed[0, 1:].tolist(), None]):
        token, log_prob = _choose(logits[place : place + 1], [*written, *(t for t, _ in right)], limits, options)
        right.append((token, log_prob))
        if token != guessed or token == options.eos_id:
            break
    return right


def _choose(
    logits: Float[Tensor, "1 vocab"], written: list[int], limits: Limits, options: SearchOptions
) -> tuple[int, float]:
    history = torch.tensor([written], dtype=torch.long).to(limits.max_length)
    allowed = allowed_log_probs(logits, history, limits, options)
    token = int(highest(allowed))
    log_prob = float(allowed[0, token])
    if not math.isfinite(log_prob):
        raise not_finite()
    return token, log_prob
