"""Beam search for outputs that contain given phrases: dynamic beam allocation (Post and Vilar, arXiv:1804.06609).

For each phrase a hypothesis tracks how many of its first tokens the output ends with, or that it is complete. `met` is
the number of tokens of complete phrases, plus those of the most advanced incomplete one. Besides the best
continuations, a step ranks the next token of every phrase and the best token of every hypothesis. The beam is divided
into banks by `met`, and each bank keeps its best hypotheses (`shares`). No hypothesis ends before all phrases are
complete.

Deviations: phrases may share tokens, and repeated phrases count once. Sentences without phrases get the results of
`search.beam_search`. `runtime/native/search.c` does the same.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.contract import FREE, Hypothesis, Limits, SearchOptions
from headwise.core.search import (
    BeamState,
    Cache,
    Continuations,
    Step,
    advance,
    ban_tokens,
    continued,
    flatten_beams,
    gather_beams,
    highest,
    move,
    next_log_probs,
    ranked,
    repeat,
    retire_beams,
    start_beams,
)


def phrase_search(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """Beam search with the exact stopping rule, for `limits` with phrases; empty lists if no output contains them.

    The beam size must be at least 2: a beam of one would write the phrases first.
    """
    assert limits.phrases is not None and options.early_stopping == "exact" and options.beam_size > 1
    state, reached = start_beams(limits, options), limits.phrases[:, None, :, 0] * 0
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits.max_length))]
    while True:
        live, phrases = state.tokens.size(1), state.limits.phrases
        assert phrases is not None
        log_probs = next_log_probs(step, cache, flatten_beams(state.tokens), repeat(state.limits, live), options)
        log_probs = ban_tokens(log_probs.clone(), (), flatten_beams(_complete(reached, phrases)), options.ends)
        candidates = _candidates(state, log_probs, reached, options)
        reached = progress(gather_beams(reached, candidates.parents), phrases, candidates.tokens)
        candidates = _without_incomplete(candidates, _complete(reached, phrases))
        survivors = _survivors(candidates, met(reached, phrases), phrases, options.beam_size)
        reached = gather_beams(reached, survivors)
        state, parents = advance(state, candidates, survivors, options)
        state, kept = retire_beams(state, found, options)
        if not len(state.sentence):
            return found
        reached = reached if kept is None else reached[kept]
        move(cache, parents, kept, live)


# --- Progress of a hypothesis ---


def _lengths(phrases: Int[Tensor, "batch phrases length"]) -> Int[Tensor, "batch 1 phrases"]:
    return (phrases != FREE).sum(-1).unsqueeze(1)


def progress(
    before: Int[Tensor, "batch n phrases"],
    phrases: Int[Tensor, "batch phrases length"],
    tokens: Int[Tensor, "batch n written"],
) -> Int[Tensor, "batch n phrases"]:
    """How many first tokens of each phrase `tokens` ends with; all of them if the phrase was complete `before`.

    >>> phrases, nothing = torch.tensor([[[5, 5, 6]]]), torch.zeros(1, 1, 1, dtype=torch.long)
    >>> [int(progress(nothing, phrases, torch.tensor([[tokens]]))) for tokens in ([5, 5, 5], [5, 5, 6], [6])]
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
    """Tokens of complete phrases, plus those of the most advanced incomplete one."""
    written = reached == _lengths(phrases)
    return reached.where(written, 0).sum(-1) + reached.masked_fill(written, 0).amax(-1)


def _complete(
    reached: Int[Tensor, "batch n phrases"], phrases: Int[Tensor, "batch phrases length"]
) -> Bool[Tensor, "batch n"]:
    return (reached == _lengths(phrases)).all(-1)


# --- Candidates of a step ---


def _candidates(state: BeamState, log_probs: Tensor, reached: Tensor, options: SearchOptions) -> Continuations:
    """The best continuations and those that phrases need, sorted."""
    totals, parents, tokens = (
        torch.cat(both, 1)
        for both in zip(ranked(state, log_probs, options), _needed(state, log_probs, reached), strict=True)
    )
    totals = totals.masked_fill(_repeated(parents * log_probs.size(1) + tokens, totals > -torch.inf), -torch.inf)
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    return continued(state, log_probs, totals, parents.gather(1, order), tokens.gather(1, order), options)


def _needed(state: BeamState, log_probs: Tensor, reached: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Like `search.ranked`: for each live hypothesis the next token of each phrase, and its best token."""
    phrases = state.limits.phrases
    assert phrases is not None
    batch, live, _ = reached.shape
    index = reached.clamp(max=phrases.size(2) - 1).unsqueeze(-1)
    following = phrases.unsqueeze(1).expand(-1, live, -1, -1).gather(3, index).squeeze(-1)
    best = highest(log_probs).view(batch, live, 1)
    has_no_phrases = (_lengths(phrases).sum(-1, keepdim=True) == 0).expand(best.shape)
    unwanted = torch.cat([reached == _lengths(phrases), has_no_phrases], 2)
    tokens = torch.cat([following, best], 2)
    values = log_probs.view(batch, live, -1).gather(2, tokens.clamp(min=0)) + state.log_probs.unsqueeze(-1)
    parents = torch.arange(live, device=tokens.device).view(1, -1, 1).expand(tokens.shape)
    values = values.masked_fill(unwanted, -torch.inf)
    return values.flatten(1), parents.flatten(1), tokens.clamp(min=0).flatten(1)


def _repeated(keys: Int[Tensor, "batch n"], possible: Bool[Tensor, "batch n"]) -> Bool[Tensor, "batch n"]:
    """True on entries that occurred further left."""
    same = (keys.unsqueeze(1) == keys.unsqueeze(2)) & possible.unsqueeze(1)
    return same.tril(-1).any(-1)


def _without_incomplete(candidates: Continuations, complete: Bool[Tensor, "batch n"]) -> Continuations:
    """Remove hypotheses of maximum length that lack a phrase."""
    lost = candidates.ended & ~complete
    return Continuations(
        tokens=candidates.tokens,
        token_log_probs=candidates.token_log_probs,
        log_probs=candidates.log_probs.masked_fill(lost, -torch.inf),
        parents=candidates.parents,
        ended=candidates.ended,
    )


# --- Selection ---


def _survivors(candidates: Continuations, banks: Tensor, phrases: Tensor, beam_size: int) -> Int[Tensor, "batch beam"]:
    """The best of each bank, in the order of the candidates; padded with dead ones."""
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
    """How many of the `offered` hypotheses each bank keeps: equal shares, the remainder for the last bank.

    Unused room goes to the previous bank, and that of the first bank to the last one that can use it.

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
