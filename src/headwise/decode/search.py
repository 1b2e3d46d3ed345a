"""Autoregressive decoding: greedy and beam search over a step function; section 6.1 of the paper.

Beam search follows Wu et al. 2016 (arXiv:1609.08144, section 7), which the paper refers to: hypotheses are
ranked by log P(Y|X) / lp(Y) with lp(Y) = ((5 + |Y|) / 6)^alpha. Each step ranks the 2 * beam_size best
continuations: those that end go to the sentence's finished hypotheses, the beam_size best others live on, so
an end never narrows the beam. A sentence stops when nothing alive can overtake what it would return. Both rules, of
ranking and of stopping, are those of an `Ending`, by default these.

A sentence's result depends on nothing but its own log-probabilities (it is batch-invariant). Not here: drawing at
random (`sampling`), models, batches of text, tokenizers. A search sees a model only as `step(tokens, cache) -> logits`
and moves the cache by `reorder` and `select`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor
from torch.nn import functional as F

from headwise.contract import Hypothesis, SearchOptions
from headwise.decode.constraints import Limits, constrain, only_choice, take
from headwise.decode.ending import ending_of
from headwise.decode.ranking import best_continuations, highest, sort_descending

COMPACT_AT = 0.1  # share of finished sentences at which the batch drops them


@runtime_checkable
class Cache(Protocol):
    """The state of incremental decoding, one row per hypothesis; both methods work in place."""

    def reorder(self, index: Tensor) -> None:
        """Row i becomes what row index[i] was; both belong to one sentence."""
        ...

    def select(self, index: Tensor) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats."""
        ...


# From the newest tokens, (rows, 1), and the cache to the logits of the next token, (rows, vocab).
Step = Callable[[Tensor, Any], Tensor]

# --- Rows on their own: greedy search and sampling ---


@dataclass(frozen=True)
class Paths:
    """Rows that grow by one token a step and never meet."""

    sentence: Int[Tensor, " rows"]  # whose output this is
    tokens: Int[Tensor, "rows length"]
    token_log_probs: Float32[Tensor, "rows length"]
    final_length: Int[Tensor, " rows"]  # tokens up to and with the end; 0 while running
    limits: Limits
    stream: Int[Tensor, " rows"]  # random stream of the sentence
    copy: Int[Tensor, " rows"]  # number among the samples of the sentence


Pick = Callable[[Tensor, Paths], Tensor]  # log-probabilities (rows, vocab) -> tokens (rows,)


def greedy(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """The likeliest token at every step; one hypothesis per sentence."""
    rows = torch.arange(len(limits.max_length), device=limits.max_length.device)
    paths = start_paths(rows, limits, torch.zeros_like(rows), torch.zeros_like(rows))
    return search_steps(step, cache, paths, options, lambda log_probs, _: highest(log_probs))


def start_paths(sentence: Tensor, limits: Limits, stream: Tensor, copy: Tensor) -> Paths:
    """Rows that have written nothing yet."""
    nothing = sentence.new_zeros(len(sentence), 0)
    return Paths(sentence, nothing, nothing.float(), torch.zeros_like(sentence), limits, stream, copy)


def search_steps(step: Step, cache: Cache, paths: Paths, options: SearchOptions, pick: Pick) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, whose rows grow by what `pick` chooses, each to its end."""
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
    """Hand over what has finished, once it is worth it, and say which rows stay; None = all."""
    done = paths.final_length > 0
    if not _worth_compacting(done):
        return paths, None
    over = take(paths, done.nonzero().squeeze(1))
    columns = (over.sentence, over.copy, over.tokens, over.token_log_probs, over.final_length)
    for sentence, _, tokens, token_log_probs, length in zip(*(c.tolist() for c in columns), strict=True):
        log_prob = sum(token_log_probs[:length])
        score = log_prob / ending_of(options).penalty(length, options.length_penalty)
        found[sentence].append(hypothesis_of(tokens[:length], token_log_probs[:length], log_prob, score, options))
    kept = _staying(done)
    return take(paths, kept), kept


# --- Beam search ---


@dataclass(frozen=True)
class Finished:
    """The best hypotheses of each sentence that have ended so far, best first."""

    tokens: Int[Tensor, "batch pool length"]
    token_log_probs: Float32[Tensor, "batch pool length"]
    lengths: Int[Tensor, "batch pool"]  # with the end mark
    log_probs: Float32[Tensor, "batch pool"]
    scores: Float32[Tensor, "batch pool"]  # -inf: none yet


@dataclass(frozen=True)
class BeamState:
    """Beam search between two steps."""

    sentence: Int[Tensor, " batch"]  # place of each sentence in the result
    done: Bool[Tensor, " batch"]  # nothing alive can change the result
    tokens: Int[Tensor, "batch live length"]  # of the living hypotheses, best first, without the start mark
    token_log_probs: Float32[Tensor, "batch live length"]
    log_probs: Float32[Tensor, "batch live"]  # -inf: nothing lives here
    finished: Finished
    limits: Limits


@dataclass(frozen=True)
class Continuations:
    """Continuations of the live hypotheses by one token, best first."""

    tokens: Int[Tensor, "batch n length"]
    token_log_probs: Float32[Tensor, "batch n length"]
    log_probs: Float32[Tensor, "batch n"]
    parents: Int[Tensor, "batch n"]  # which live hypothesis each one continues
    ended: Bool[Tensor, "batch n"]  # by the end mark, or by having reached the longest length


def beam_search(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """Up to `n_best` hypotheses per sentence, best first; fewer only where fewer exist.

    Args:
        step: gives the logits after the newest tokens; its first call has one row per sentence, later ones
            `beam_size` neighbouring rows per sentence.
        cache: one row per sentence at the start.
        limits: one row per sentence.
        options: `n_best <= beam_size`.
    """
    if options.beam_size == 1:  # where the only hypothesis ends, nothing lives on: that is greedy search
        return greedy(step, cache, limits, options)
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits.max_length))]
    for _ in beam_steps(step, cache, limits, options, found):
        pass
    return found


def beam_steps(
    step: Step, cache: Cache, limits: Limits, options: SearchOptions, found: list[list[Hypothesis]]
) -> Iterator[Continuations]:
    """`beam_search` for a beam of several, step by step: what each step ranks, before the best live on.

    The hypotheses of each sentence are in `found` when it ends.
    """
    assert options.n_best <= options.beam_size
    state = start_beams(limits, options)
    while len(state.sentence):
        live = state.tokens.size(1)
        log_probs = next_log_probs(step, cache, flatten_beams(state.tokens), state.limits.repeat(live), options)
        candidates = continued(state, log_probs, *ranked(state, log_probs, options), options)
        yield candidates
        lives_on = candidates.ended.long().sort(dim=1, stable=True).indices[:, : options.beam_size]
        state, parents = advance(state, candidates, lives_on, options)
        state, kept = retire_beams(state, found, options)
        if len(state.sentence):
            move(cache, parents, kept, live)


def flatten_beams(x: Tensor) -> Tensor:
    """(batch, beams, ...) to (rows, ...)."""
    return x.flatten(0, 1)


def gather_beams(x: Tensor, index: Int[Tensor, "batch chosen"]) -> Tensor:
    """The beams of `index` in each sentence, of a tensor (batch, beams) or (batch, beams, length)."""
    if x.dim() == 2:
        return x.gather(1, index)
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.size(2)))


def start_beams(limits: Limits, options: SearchOptions) -> BeamState:
    """One empty live hypothesis per sentence; the first step multiplies it."""
    batch, device = len(limits.max_length), limits.max_length.device
    pool = ending_of(options).pool(options.beam_size, options.n_best)
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
    """Log-probabilities (rows, vocab) of what may follow `history` (rows, length), in float32."""
    start = history.new_full((len(history), 1), options.bos_id)
    newest = history[:, -1:] if history.size(1) else start
    return allowed_log_probs(step(newest, cache), history, limits, options)


def allowed_log_probs(logits: Tensor, history: Tensor, limits: Limits, options: SearchOptions) -> Tensor:
    """From what a model says of the token after `history` to log-probabilities (rows, vocab) of what may be written."""
    if limits.barred is not None:
        logits = logits.masked_fill(limits.barred, -torch.inf)
    log_probs, length = logits.log_softmax(-1, dtype=torch.float32), history.size(1)
    if options.suppressed_first and not length:
        log_probs[:, list(options.suppressed_first)] = -torch.inf
    for rule in options.rules:
        log_probs = rule(log_probs, history)
    if options.forced_end is not None and options.begun + length + 1 == options.end_at:
        log_probs = only_choice(log_probs, options.forced_end)
    return constrain(
        log_probs,
        history,
        limits,
        options.suppressed,
        options.no_repeat_ngram,
        options.eos_id,
        options.other_ends,
        options.counted,
    )


def has_ended(tokens: Int[Tensor, "*rows length"], options: SearchOptions) -> Bool[Tensor, " *rows"]:
    """Where the last token is an end mark, or a reason to stop."""
    last = tokens[..., -1]
    ended = last == options.eos_id
    for end in options.other_ends:
        ended |= last == end
    if options.stop:
        stops = options.stop(tokens.flatten(0, -2).tolist())
        ended |= torch.tensor(stops, device=last.device).view_as(last)
    return ended


def advance(
    state: BeamState, candidates: Continuations, lives_on: Int[Tensor, "batch beam"], options: SearchOptions
) -> tuple[BeamState, Tensor]:
    """One step of every sentence; also which live hypothesis each new one continues, (batch, beam_size)."""
    finished = _keep_finished(state.finished, candidates, state.done, options)
    live_log_probs = candidates.log_probs.masked_fill(candidates.ended, -torch.inf).gather(1, lives_on)
    settled = _is_settled(live_log_probs, finished.scores, candidates.tokens.size(2), state.limits, options)
    state = BeamState(
        sentence=state.sentence,
        done=state.done | settled,
        tokens=gather_beams(candidates.tokens, lives_on),
        token_log_probs=gather_beams(candidates.token_log_probs, lives_on),
        log_probs=live_log_probs,
        finished=finished,
        limits=state.limits,
    )
    return state, candidates.parents.gather(1, lives_on)


def ranked(state: BeamState, log_probs: Tensor, options: SearchOptions) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, parents and last pieces of the 2 * beam_size best continuations of each sentence, (batch, n).

    At most half of them can be ends; where there are more end marks, there are more.
    """
    n = (2 + len(options.other_ends)) * options.beam_size
    live, vocab = state.tokens.size(1), log_probs.size(1)
    log_probs = log_probs.unflatten(0, (-1, live))
    totals, parents, pieces = best_continuations(log_probs, state.log_probs, min(n, live * vocab))
    missing = n - totals.size(1)  # a vocabulary smaller than the beam
    if missing:
        totals = F.pad(totals, (0, missing), value=-torch.inf)
        parents, pieces = F.pad(parents, (0, missing)), F.pad(pieces, (0, missing))
    return totals, parents, pieces


def continued(
    state: BeamState, log_probs: Tensor, totals: Tensor, parents: Tensor, pieces: Tensor, options: SearchOptions
) -> Continuations:
    """The continuations of these parents by these pieces, all (batch, n); log_probs as of `next_log_probs`."""
    of_sentences = log_probs.view(len(parents), -1)
    new_log_probs = of_sentences.gather(1, parents * log_probs.size(1) + pieces).unsqueeze(-1)
    tokens = torch.cat([gather_beams(state.tokens, parents), pieces.unsqueeze(-1)], -1)
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
    """The best among what had finished and what ends now; the earlier wins a tie. What is done stays as it is."""
    length = candidates.tokens.size(2)
    scores = candidates.log_probs / ending_of(options).penalty(length, options.length_penalty)
    scores = scores.masked_fill(~candidates.ended | done.unsqueeze(1), -torch.inf)
    scores[:, ending_of(options).counted(options.beam_size, scores.size(1)) :] = -torch.inf
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


def _is_settled(
    live_log_probs: Float32[Tensor, "batch live"],
    finished_scores: Float32[Tensor, "batch pool"],
    length: int,
    limits: Limits,
    options: SearchOptions,
) -> Bool[Tensor, " batch"]:
    """Where the search is over."""
    over = ending_of(options).settled(
        live_log_probs, finished_scores, length, limits.max_length, options.length_penalty
    )
    return over | (length >= limits.max_length)


def retire_beams(
    state: BeamState, found: list[list[Hypothesis]], options: SearchOptions
) -> tuple[BeamState, Tensor | None]:
    """Hand over the sentences that are done, once it is worth it, and say which stay; None = all."""
    if not _worth_compacting(state.done):
        return state, None
    over = take(state, state.done.nonzero().squeeze(1))
    ended = over.finished
    columns = (ended.tokens, ended.token_log_probs, ended.lengths, ended.log_probs, ended.scores)
    rows = zip(*(c.tolist() for c in columns), strict=True)
    for sentence, row in zip(over.sentence.tolist(), rows, strict=True):
        found[sentence] = [
            hypothesis_of(tokens[:length], token_log_probs[:length], log_prob, score, options)
            for tokens, token_log_probs, length, log_prob, score in zip(*row, strict=True)
            if score > -torch.inf
        ][: options.n_best]
    kept = _staying(state.done)
    return take(state, kept), kept


def move(cache: Cache, parents: Tensor, kept: Tensor | None, live: int) -> None:
    """Bring the cache's rows in line with the live hypotheses; `live` is how many a sentence had before."""
    sentences = torch.arange(len(parents), device=parents.device) if kept is None else kept
    index = (sentences.unsqueeze(1) * live + parents[sentences]).flatten()
    if kept is None and live == parents.size(1):
        cache.reorder(index)
    else:
        cache.select(index)


# --- Both ---


def _worth_compacting(done: Bool[Tensor, " rows"]) -> bool:
    """Whether enough has finished; the only moment of a step at which the program waits for the device."""
    return int(done.sum()) >= max(1.0, COMPACT_AT * len(done))


def _staying(done: Bool[Tensor, " rows"]) -> Int[Tensor, " kept"]:
    """The rows that are not done; the last ones take the places of those that leave, so that few have to move."""
    stays = (~done).nonzero().squeeze(1)
    places = torch.arange(len(stays), device=done.device)
    places[done[: len(stays)]] = stays[stays >= len(stays)]
    return places


def hypothesis_of(
    tokens: Sequence[int], token_log_probs: Sequence[float], log_prob: float, score: float, options: SearchOptions
) -> Hypothesis:
    """One output, from what was written up to its end."""
    pieces = tokens[:-1] if tokens[-1] in (options.eos_id, *options.other_ends) else tokens
    return Hypothesis(list(pieces), score, log_prob, list(token_log_probs))
