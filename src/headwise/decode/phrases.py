"""Beam search for outputs that contain given phrases: dynamic beam allocation (Post and Vilar, arXiv:1804.06609).

A hypothesis knows of each phrase how many of its pieces the newest pieces are, all of them once it is written; what
breaks off a phrase drops back to what of it still stands there. `met` counts the pieces of written phrases and those of
the unfinished one that is furthest. Beside the best continuations a step ranks the next piece of every phrase and the
best piece of every hypothesis; the beam is divided into banks by `met`, and each keeps its best (`shares`). Nothing
ends before all phrases are written.

Departures: a phrase is written wherever its pieces stand side by side, so that two may share pieces, and one that is
asked for twice is asked for once. Sentences without phrases yield what `search.beam_search` gives them. C does the same
(`native/search.c`). Not here: words and their phrases (`headwise.terms`).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.contract import FREE, Hypothesis, SearchOptions
from headwise.decode.constraints import Limits
from headwise.decode.ranking import highest
from headwise.decode.search import (
    BeamState,
    Cache,
    Continuations,
    Step,
    advance,
    continued,
    flatten_beams,
    gather_beams,
    move,
    next_log_probs,
    ranked,
    retire_beams,
    start_beams,
)


def phrase_search(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """As `search.beam_search` by the paper's ending, for `limits` with phrases; nothing where no output contains them.

    A beam of one would write the phrases first, and is refused.
    """
    assert limits.phrases is not None and options.ending == "unsurpassed" and options.beam_size > 1
    state, reached = start_beams(limits, options), limits.phrases[:, None, :, 0] * 0
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits.max_length))]
    while True:
        live, phrases = state.tokens.size(1), state.limits.phrases
        assert phrases is not None
        log_probs = next_log_probs(step, cache, flatten_beams(state.tokens), state.limits.repeat(live), options)
        log_probs = _unended(log_probs, flatten_beams(_complete(reached, phrases)), options)
        candidates = _candidates(state, log_probs, reached, options)
        reached = progress(gather_beams(reached, candidates.parents), phrases, candidates.tokens)
        candidates = _without_incomplete(candidates, _complete(reached, phrases))
        lives_on = _survivors(candidates, met(reached, phrases), phrases, options.beam_size)
        reached = gather_beams(reached, lives_on)
        state, parents = advance(state, candidates, lives_on, options)
        state, kept = retire_beams(state, found, options)
        if not len(state.sentence):
            return found
        reached = reached if kept is None else reached[kept]
        move(cache, parents, kept, live)


# --- How far a hypothesis is ---


def _lengths(phrases: Int[Tensor, "batch phrases length"]) -> Int[Tensor, "batch 1 phrases"]:
    return (phrases != FREE).sum(-1).unsqueeze(1)


def progress(
    before: Int[Tensor, "batch n phrases"],
    phrases: Int[Tensor, "batch phrases length"],
    tokens: Int[Tensor, "batch n written"],
) -> Int[Tensor, "batch n phrases"]:
    """Pieces of each phrase that stand at the end of `tokens`; all of them if they stood there `before`.

    >>> phrases, nothing = torch.tensor([[[5, 5, 6]]]), torch.zeros(1, 1, 1, dtype=torch.long)
    >>> [int(progress(nothing, phrases, torch.tensor([[said]]))) for said in ([5, 5, 5], [5, 5, 6], [6])]
    [2, 3, 0]
    """
    now = torch.zeros_like(before)
    for count in range(1, min(phrases.size(2), tokens.size(2)) + 1):
        same = (tokens[:, :, None, -count:] == phrases[:, None, :, :count]).all(-1)
        now = now.masked_fill(same, count)
    return torch.where(before == _lengths(phrases), before, now)


def met(
    reached: Int[Tensor, "batch n phrases"], phrases: Int[Tensor, "batch phrases length"]
) -> Int[Tensor, "batch n"]:
    """Pieces of written phrases, and of the unfinished one that is furthest."""
    written = reached == _lengths(phrases)
    return reached.where(written, 0).sum(-1) + reached.masked_fill(written, 0).amax(-1)


def _complete(
    reached: Int[Tensor, "batch n phrases"], phrases: Int[Tensor, "batch phrases length"]
) -> Bool[Tensor, "batch n"]:
    return (reached == _lengths(phrases)).all(-1)


# --- What a step ranks ---


def _unended(log_probs: Tensor, complete: Bool[Tensor, " rows"], options: SearchOptions) -> Tensor:
    """Without end marks where something is still to be written."""
    log_probs = log_probs.clone()
    for end in (options.eos_id, *options.other_ends):
        log_probs[:, end].masked_fill_(~complete, -torch.inf)
    return log_probs


def _candidates(state: BeamState, log_probs: Tensor, reached: Tensor, options: SearchOptions) -> Continuations:
    """The best continuations, and behind those that are as likely the ones that phrases ask for."""
    totals, parents, pieces = (
        torch.cat(both, 1)
        for both in zip(ranked(state, log_probs, options), _needed(state, log_probs, reached), strict=True)
    )
    totals = totals.masked_fill(_repeated(parents * log_probs.size(1) + pieces, totals > -torch.inf), -torch.inf)
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    return continued(state, log_probs, totals, parents.gather(1, order), pieces.gather(1, order), options)


def _needed(state: BeamState, log_probs: Tensor, reached: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `search.ranked`: of each living hypothesis the next piece of each phrase, and its own best piece."""
    phrases = state.limits.phrases
    assert phrases is not None
    batch, live, _ = reached.shape
    place = reached.clamp(max=phrases.size(2) - 1).unsqueeze(-1)
    following = phrases.unsqueeze(1).expand(-1, live, -1, -1).gather(3, place).squeeze(-1)
    best = highest(log_probs).view(batch, live, 1)
    asks_nothing = (_lengths(phrases).sum(-1, keepdim=True) == 0).expand(best.shape)
    unwanted = torch.cat([reached == _lengths(phrases), asks_nothing], 2)
    pieces = torch.cat([following, best], 2)
    values = log_probs.view(batch, live, -1).gather(2, pieces.clamp(min=0)) + state.log_probs.unsqueeze(-1)
    parents = torch.arange(live, device=pieces.device).view(1, -1, 1).expand(pieces.shape)
    values = values.masked_fill(unwanted, -torch.inf)
    return values.flatten(1), parents.flatten(1), pieces.clamp(min=0).flatten(1)


def _repeated(keys: Int[Tensor, "batch n"], possible: Bool[Tensor, "batch n"]) -> Bool[Tensor, "batch n"]:
    """Which are further to the right a second time."""
    same = (keys.unsqueeze(1) == keys.unsqueeze(2)) & possible.unsqueeze(1)
    return same.tril(-1).any(-1)


def _without_incomplete(candidates: Continuations, complete: Bool[Tensor, "batch n"]) -> Continuations:
    """What has reached the longest length and lacks a phrase is nothing."""
    lost = candidates.ended & ~complete
    return Continuations(
        tokens=candidates.tokens,
        token_log_probs=candidates.token_log_probs,
        log_probs=candidates.log_probs.masked_fill(lost, -torch.inf),
        parents=candidates.parents,
        ended=candidates.ended,
    )


# --- Who lives on ---


def _survivors(candidates: Continuations, banks: Tensor, phrases: Tensor, beam_size: int) -> Int[Tensor, "batch beam"]:
    """The best of each bank, in the candidates' order; behind them others, which cannot live."""
    alive = ~candidates.ended & (candidates.log_probs > -torch.inf)
    chosen = torch.zeros_like(alive)
    wanted = _lengths(phrases).sum((1, 2)).tolist()
    for row, (total, lives, bank) in enumerate(zip(wanted, alive.tolist(), banks.tolist(), strict=True)):
        offered = [sum(one == at for one, can in zip(bank, lives, strict=True) if can) for at in range(total + 1)]
        left = shares(offered, beam_size)
        for i, at in enumerate(bank):
            if lives[i] and left[at]:
                left[at] -= 1
                chosen[row, i] = True
    return (~chosen).long().sort(dim=1, stable=True).indices[:, :beam_size]


def shares(offered: Sequence[int], beam_size: int) -> list[int]:
    """How many of what each bank is offered it keeps: as many as the others, and the last the remainder.

    What a bank has no use for goes to the one before it, and what the first has left to the furthest that can use it.

    >>> shares([9, 9, 9], 8), shares([9, 2, 0], 8), shares([1, 9, 3], 8)
    ([2, 2, 4], [6, 2, 0], [1, 4, 3])
    """
    kept = [beam_size // len(offered)] * len(offered)
    kept[-1] += beam_size % len(offered)
    left = 0
    for bank in (*reversed(range(len(offered))), *reversed(range(len(offered)))):
        room = kept[bank] + left
        kept[bank] = min(room, offered[bank])
        left = room - kept[bank]
    return kept
