"""Autoregressive decoding: greedy and beam search over a step function; section 6.1 of the paper.

Beam search follows Wu et al. 2016 (arXiv:1609.08144, section 7), which the paper cites: hypotheses are ranked by
log P(Y|X) / lp(Y) with lp(Y) = ((5 + |Y|) / 6)^alpha. Each step ranks the 2 * beam_size best continuations. Those that
end join the sentence's finished hypotheses; the beam_size best others stay live, so an end never narrows the beam. A
sentence stops when no live hypothesis can overtake the results. `stopping_rules` has this rule and others.

Results are batch-invariant: they depend only on the sentence's log-probabilities. A search sees a model only as
`step(tokens, cache) -> logits` and moves the cache by `reorder` and `select`. Sampling is in `sampling`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.contract import Hypothesis, SearchOptions
from headwise.core.constraints import Limits, adjust, constrain, only_choice, take
from headwise.core.extensions.timestamps import constrain_timestamps
from headwise.core.ranking import best_continuations, highest, sort_descending
from headwise.core.stopping_rules import stopping_rule

COMPACT_AT = 0.1  # share of finished sentences at which they are removed from the batch


@runtime_checkable
class Cache(Protocol):
    """The state of incremental decoding, one row per hypothesis; both methods work in place."""

    def reorder(self, index: Tensor) -> None:
        """Row i becomes row index[i] of the same sentence."""
        ...

    def select(self, index: Tensor) -> None:
        """Keep the rows of `index`, in its order; it may repeat rows."""
        ...


# From the newest tokens, (rows, 1), and the cache to the logits of the next token, (rows, vocab).
Step = Callable[[Tensor, Any], Tensor]

# --- Independent rows: greedy search and sampling ---


@dataclass(frozen=True)
class Paths:
    """Independent rows that grow by one token per step."""

    sentence: Int[Tensor, " rows"]  # index of the sentence
    tokens: Int[Tensor, "rows length"]
    token_log_probs: Float32[Tensor, "rows length"]
    final_length: Int[Tensor, " rows"]  # length with the end token; 0 while running
    limits: Limits
    stream: Int[Tensor, " rows"]  # random stream of the sentence
    copy: Int[Tensor, " rows"]  # number of the sample


Pick = Callable[[Tensor, Paths], Tensor]  # log-probabilities (rows, vocab) -> tokens (rows,)


def greedy(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """The most probable token at every step; one hypothesis per sentence."""
    rows = torch.arange(len(limits.max_length), device=limits.max_length.device)
    paths = start_paths(rows, limits, torch.zeros_like(rows), torch.zeros_like(rows))
    return search_steps(step, cache, paths, options, lambda log_probs, _: highest(log_probs))


def start_paths(sentence: Tensor, limits: Limits, stream: Tensor, copy: Tensor) -> Paths:
    """Empty rows."""
    nothing = sentence.new_zeros(len(sentence), 0)
    return Paths(sentence, nothing, nothing.float(), torch.zeros_like(sentence), limits, stream, copy)


def search_steps(step: Step, cache: Cache, paths: Paths, options: SearchOptions, pick: Pick) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence; every row grows by the token that `pick` chooses."""
    found: list[list[Hypothesis]] = [[] for _ in range(int(paths.sentence[-1]) + 1)]
    while True:
        log_probs = next_log_probs(step, cache, paths.tokens, paths.limits, options)
        paths = _extend(paths, log_probs, pick(log_probs, paths), options)
        paths, kept = _retire_paths(paths, found, options)
        if not len(paths.sentence):
            return found
        if kept is not None:
            cache.select(kept)


def _extend(paths: Paths, log_probs: Tensor, chosen: Tensor, options: SearchOptions) -> Paths:
    length = paths.tokens.size(1) + 1
    chosen = chosen.unsqueeze(1)
    tokens = torch.cat([paths.tokens, chosen], 1)
    ends = has_ended(tokens, options) | (length >= paths.limits.max_length)
    return replace(
        paths,
        tokens=tokens,
        token_log_probs=torch.cat([paths.token_log_probs, log_probs.gather(1, chosen)], 1),
        final_length=paths.final_length.masked_fill(ends & (paths.final_length == 0), length),
    )


def _retire_paths(paths: Paths, found: list[list[Hypothesis]], options: SearchOptions) -> tuple[Paths, Tensor | None]:
    """Move finished rows to `found`, if there are enough, and return the rows to keep; None = all."""
    done = paths.final_length > 0
    if not _worth_compacting(done):
        return paths, None
    finished = take(paths, done.nonzero().squeeze(1))
    columns = (finished.sentence, finished.copy, finished.tokens, finished.token_log_probs, finished.final_length)
    for sentence, _, tokens, token_log_probs, length in zip(*(c.tolist() for c in columns), strict=True):
        log_prob = sum(token_log_probs[:length])
        score = log_prob / stopping_rule(options).penalty(length, options.length_penalty)
        found[sentence].append(hypothesis_of(tokens[:length], token_log_probs[:length], log_prob, score, options))
    kept = _staying(done)
    return take(paths, kept), kept


# --- Beam search ---


@dataclass(frozen=True)
class Finished:
    """The finished hypotheses of each sentence, best first."""

    tokens: Int[Tensor, "batch pool length"]
    token_log_probs: Float32[Tensor, "batch pool length"]
    lengths: Int[Tensor, "batch pool"]  # with the end token
    log_probs: Float32[Tensor, "batch pool"]
    scores: Float32[Tensor, "batch pool"]  # -inf = none


@dataclass(frozen=True)
class BeamState:
    """Beam search between two steps."""

    sentence: Int[Tensor, " batch"]  # index of each sentence in the result
    done: Bool[Tensor, " batch"]  # True if the result is final
    tokens: Int[Tensor, "batch live length"]  # of live hypotheses, best first, without the start token
    token_log_probs: Float32[Tensor, "batch live length"]
    log_probs: Float32[Tensor, "batch live"]  # -inf = none
    finished: Finished
    limits: Limits


@dataclass(frozen=True)
class Continuations:
    """Live hypotheses extended by one token, best first."""

    tokens: Int[Tensor, "batch n length"]
    token_log_probs: Float32[Tensor, "batch n length"]
    log_probs: Float32[Tensor, "batch n"]
    parents: Int[Tensor, "batch n"]  # index of the extended hypothesis
    ended: Bool[Tensor, "batch n"]  # with an end token, or at the maximum length


def beam_search(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """Up to `n_best` hypotheses per sentence, best first; fewer only if fewer exist.

    Args:
        step: returns the logits after the newest tokens; the first call has one row per sentence, later calls
            `beam_size` adjacent rows.
        cache: one row per sentence at the start.
        limits: one row per sentence.
        options: `n_best <= beam_size`.
    """
    if options.beam_size == 1:  # equivalent, and faster
        return greedy(step, cache, limits, options)
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits.max_length))]
    for _ in beam_steps(step, cache, limits, options, found):
        pass
    return found


def beam_steps(
    step: Step, cache: Cache, limits: Limits, options: SearchOptions, found: list[list[Hypothesis]]
) -> Iterator[Continuations]:
    """`beam_search` for a beam of at least 2, step by step: yields the ranked continuations of each step.

    The hypotheses of each sentence are in `found` at the end.
    """
    assert options.n_best <= options.beam_size
    state = start_beams(limits, options)
    while len(state.sentence):
        live = state.tokens.size(1)
        log_probs = next_log_probs(step, cache, flatten_beams(state.tokens), state.limits.repeat(live), options)
        candidates = continued(state, log_probs, *ranked(state, log_probs, options), options)
        yield candidates
        survivors = candidates.ended.long().sort(dim=1, stable=True).indices[:, : options.beam_size]
        state, parents = advance(state, candidates, survivors, options)
        state, kept = retire_beams(state, found, options)
        if len(state.sentence):
            move(cache, parents, kept, live)


def flatten_beams(x: Tensor) -> Tensor:
    """(batch, beams, ...) to (rows, ...)."""
    return x.flatten(0, 1)


def gather_beams(x: Tensor, index: Int[Tensor, "batch chosen"]) -> Tensor:
    """The beams at `index` in each sentence, from a tensor (batch, beams) or (batch, beams, length)."""
    if x.dim() == 2:
        return x.gather(1, index)
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.size(2)))


def start_beams(limits: Limits, options: SearchOptions) -> BeamState:
    """One empty live hypothesis per sentence; the first step multiplies it."""
    batch, device = len(limits.max_length), limits.max_length.device
    pool = stopping_rule(options).pool(options.beam_size, options.n_best)
    zeros = torch.zeros(batch, pool, device=device)
    nothing = torch.zeros(batch, 1, 0, dtype=torch.long, device=device)
    none_finished = nothing.expand(-1, pool, -1)
    return BeamState(
        sentence=torch.arange(batch, device=device),
        done=torch.zeros(batch, dtype=torch.bool, device=device),
        tokens=nothing,
        token_log_probs=nothing.float(),
        log_probs=zeros[:, :1],
        finished=Finished(
            none_finished, none_finished.float(), zeros.long(), zeros, torch.full_like(zeros, -torch.inf)
        ),
        limits=limits,
    )


def next_log_probs(step: Step, cache: Cache, history: Tensor, limits: Limits, options: SearchOptions) -> Tensor:
    """float32 log-probabilities (rows, vocab) of the tokens allowed after `history` (rows, length)."""
    start = history.new_full((len(history), 1), options.bos_id)
    newest = history[:, -1:] if history.size(1) else start
    return allowed_log_probs(step(newest, cache), history, limits, options)


def allowed_log_probs(logits: Tensor, history: Tensor, limits: Limits, options: SearchOptions) -> Tensor:
    """Log-probabilities (rows, vocab) of the tokens allowed after `history`, from the model's logits."""
    if limits.barred is not None:
        logits = logits.masked_fill(limits.barred, -torch.inf)
    if options.of_logits:
        logits = _adjusted(logits, history, limits, options)
    log_probs, length = logits.log_softmax(-1, dtype=torch.float32), history.size(1)
    if not options.of_logits:
        log_probs = _adjusted(log_probs, history, limits, options)
    if options.suppressed_first and not length:
        log_probs[:, list(options.suppressed_first)] = -torch.inf
    for rule in options.rules:
        log_probs = rule(log_probs, history)
    if options.timestamps or options.among_allowed:
        log_probs[:, list(options.suppressed)] = -torch.inf  # before what depends on the other tokens
    if options.timestamps:
        log_probs = constrain_timestamps(log_probs, history, options.timestamps, options.eos_id)
    if options.among_allowed:
        log_probs = log_probs.log_softmax(-1)
    if options.forced_end is not None and options.n_forced + length + 1 == options.end_at:
        log_probs = only_choice(log_probs, options.forced_end)
    return constrain(
        log_probs,
        history,
        limits,
        options.suppressed,
        options.no_repeat_ngram,
        options.eos_id,
        options.other_ends,
        options.ngram_context,
    )


def _adjusted(scores: Tensor, history: Tensor, limits: Limits, options: SearchOptions) -> Tensor:
    """Logits or log-probabilities (rows, vocab) with the bias and the penalty of the options, if there are any."""
    if options.repetition_penalty == 1 and not options.sequence_bias:
        return scores
    tokens = history if limits.context is None else torch.cat([limits.context, history], 1)
    return adjust(scores.float(), tokens, options.repetition_penalty, options.sequence_bias)


def has_ended(tokens: Int[Tensor, "*rows length"], options: SearchOptions) -> Bool[Tensor, " *rows"]:
    """True where the last token is an end token, or completes a stop string."""
    last = tokens[..., -1]
    ended = last == options.eos_id
    for end in options.other_ends:
        ended |= last == end
    if options.stop:
        stops = options.stop(tokens.flatten(0, -2).tolist())
        ended |= torch.tensor(stops, device=last.device).view_as(last)
    return ended


def advance(
    state: BeamState, candidates: Continuations, survivors: Int[Tensor, "batch beam"], options: SearchOptions
) -> tuple[BeamState, Tensor]:
    """The state after a step, and the index of the extended hypothesis for each live one, (batch, beam_size)."""
    finished = _keep_finished(state.finished, candidates, state.done, options)
    live_log_probs = candidates.log_probs.masked_fill(candidates.ended, -torch.inf).gather(1, survivors)
    is_done = _is_done(live_log_probs, finished.scores, candidates.tokens.size(2), state.limits, options)
    state = BeamState(
        sentence=state.sentence,
        done=state.done | is_done,
        tokens=gather_beams(candidates.tokens, survivors),
        token_log_probs=gather_beams(candidates.token_log_probs, survivors),
        log_probs=live_log_probs,
        finished=finished,
        limits=state.limits,
    )
    return state, candidates.parents.gather(1, survivors)


def ranked(state: BeamState, log_probs: Tensor, options: SearchOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, parents and last tokens of the 2 * beam_size best continuations of each sentence, (batch, n).

    At most half of them can end. With further end tokens, n is larger.
    """
    n = (2 + len(options.other_ends)) * options.beam_size
    live, vocab = state.tokens.size(1), log_probs.size(1)
    log_probs = log_probs.unflatten(0, (-1, live))
    totals, parents, last = best_continuations(log_probs, state.log_probs, min(n, live * vocab))
    missing = n - totals.size(1)  # a vocabulary smaller than the beam
    if missing:
        totals = F.pad(totals, (0, missing), value=-torch.inf)
        parents, last = F.pad(parents, (0, missing)), F.pad(last, (0, missing))
    return totals, parents, last


def continued(
    state: BeamState, log_probs: Tensor, totals: Tensor, parents: Tensor, last: Tensor, options: SearchOptions
) -> Continuations:
    """The parents extended by these tokens, all (batch, n); `log_probs` as from `next_log_probs`."""
    of_sentences = log_probs.view(len(parents), -1)
    new_log_probs = of_sentences.gather(1, parents * log_probs.size(1) + last).unsqueeze(-1)
    tokens = torch.cat([gather_beams(state.tokens, parents), last.unsqueeze(-1)], -1)
    at_limit = tokens.size(2) >= state.limits.max_length
    return Continuations(
        tokens=tokens,
        token_log_probs=torch.cat([gather_beams(state.token_log_probs, parents), new_log_probs], -1),
        log_probs=totals,
        parents=parents,
        ended=has_ended(tokens, options) | at_limit.unsqueeze(1),
    )


def _keep_finished(
    finished: Finished, candidates: Continuations, done: Bool[Tensor, " batch"], options: SearchOptions
) -> Finished:
    """The best of the finished and newly ended hypotheses; the earlier wins a tie.

    Sentences that are done do not change.
    """
    length = candidates.tokens.size(2)
    scores = candidates.log_probs / stopping_rule(options).penalty(length, options.length_penalty)
    scores = scores.masked_fill(~candidates.ended | done.unsqueeze(1), -torch.inf)
    scores[:, stopping_rule(options).n_may_finish(options.beam_size, scores.size(1)) :] = -torch.inf
    scores, chosen = sort_descending(torch.cat([finished.scores, scores], 1), finished.scores.size(1))

    def merge(old: Tensor, new: Tensor) -> Tensor:
        return gather_beams(torch.cat([old, new], 1), chosen)

    return Finished(
        tokens=merge(F.pad(finished.tokens, (0, 1)), candidates.tokens),
        token_log_probs=merge(F.pad(finished.token_log_probs, (0, 1)), candidates.token_log_probs),
        lengths=merge(finished.lengths, torch.full_like(candidates.parents, length)),
        log_probs=merge(finished.log_probs, candidates.log_probs),
        scores=scores,
    )


def _is_done(
    live_log_probs: Float32[Tensor, "batch live"],
    finished_scores: Float32[Tensor, "batch pool"],
    length: int,
    limits: Limits,
    options: SearchOptions,
) -> Bool[Tensor, " batch"]:
    """True where the search is over."""
    over = stopping_rule(options).is_done(
        live_log_probs, finished_scores, length, limits.max_length, options.length_penalty
    )
    return over | (length >= limits.max_length)


def retire_beams(
    state: BeamState, found: list[list[Hypothesis]], options: SearchOptions
) -> tuple[BeamState, Tensor | None]:
    """Move finished sentences to `found`, if there are enough, and return those to keep; None = all."""
    if not _worth_compacting(state.done):
        return state, None
    retired = take(state, state.done.nonzero().squeeze(1))
    ended = retired.finished
    columns = (ended.tokens, ended.token_log_probs, ended.lengths, ended.log_probs, ended.scores)
    rows = zip(*(c.tolist() for c in columns), strict=True)
    for sentence, row in zip(retired.sentence.tolist(), rows, strict=True):
        found[sentence] = [
            hypothesis_of(tokens[:length], token_log_probs[:length], log_prob, score, options)
            for tokens, token_log_probs, length, log_prob, score in zip(*row, strict=True)
            if score > -torch.inf
        ][: options.n_best]
    kept = _staying(state.done)
    return take(state, kept), kept


def move(cache: Cache, parents: Tensor, kept: Tensor | None, live: int) -> None:
    """Reorder the cache's rows to match the live hypotheses; `live` is their number per sentence before the step."""
    sentences = torch.arange(len(parents), device=parents.device) if kept is None else kept
    index = (sentences.unsqueeze(1) * live + parents[sentences]).flatten()
    if kept is None and live == parents.size(1):
        cache.reorder(index)
    else:
        cache.select(index)


# --- Shared ---


def _worth_compacting(done: Bool[Tensor, " rows"]) -> bool:
    """Whether enough rows have finished; the only device synchronisation of a step."""
    return int(done.sum()) >= max(1.0, COMPACT_AT * len(done))


def _staying(done: Bool[Tensor, " rows"]) -> Int[Tensor, " kept"]:
    """The rows to keep; the last ones replace those that leave, so that few rows move."""
    stays = (~done).nonzero().squeeze(1)
    rows = torch.arange(len(stays), device=done.device)
    rows[done[: len(stays)]] = stays[stays >= len(stays)]
    return rows


def hypothesis_of(
    tokens: Sequence[int], token_log_probs: Sequence[float], log_prob: float, score: float, options: SearchOptions
) -> Hypothesis:
    """A hypothesis without its end token."""
    without_end = tokens[:-1] if tokens[-1] in (options.eos_id, *options.other_ends) else tokens
    return Hypothesis(list(without_end), score, log_prob, list(token_log_probs))
