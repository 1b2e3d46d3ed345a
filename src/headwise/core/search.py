"""Autoregressive decoding: greedy and beam search over a step function; section 6.1 of the paper.

Beam search follows Wu et al. 2016 (arXiv:1609.08144, section 7), which the paper cites: hypotheses are ranked by
log P(Y|X) / lp(Y) with lp(Y) = ((5 + |Y|) / 6)^alpha. Each step ranks the 2 * beam_size best continuations. Those that
end join the sentence's finished hypotheses; the beam_size best others stay live, so an end never narrows the beam. A
sentence stops when no live hypothesis can overtake the results. `stopping_rules` has this rule and others.

Results are batch-invariant: they depend only on the sentence's log-probabilities. A search sees a model only as
`step(tokens, cache) -> logits` and moves the cache by `reorder` and `select`. Sampling is in `sampling`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32, Int, Int64
from torch import Tensor
from torch.nn import functional as F

from headwise.contract import BLOCK, FREE, Hypothesis, Limits, SearchOptions, length_penalty, power_penalty
from headwise.core.extensions.timestamps import constrain_timestamps

# Constraints on outputs: lengths, forced prefix, suppressed tokens, repeated n-grams; biases and penalties.
#
# They are functions on the log-probabilities of the next token. Forbidden tokens get -inf; others keep their
# probability, so that scores remain those of the model. Only `adjust` changes them.

Record = TypeVar("Record")


def take(record: Record, rows: Int[Tensor, " kept"]) -> Record:
    """A copy of the record with only the given rows of its tensors."""
    assert is_dataclass(record) and not isinstance(record, type)
    kept = {f.name: _take_value(getattr(record, f.name), rows) for f in fields(record)}
    return replace(record, **kept)


def _take_value(value: object, rows: Tensor) -> object:
    if value is None:
        return None
    return value.index_select(0, rows) if isinstance(value, Tensor) else take(value, rows)


def repeat(limits: Limits, times: int) -> Limits:
    """Each row repeated `times` times: one for each hypothesis of a sentence."""
    return limits if times == 1 else limits.each(lambda of_rows: of_rows.repeat_interleave(times, 0))


def constrain(
    log_probs: Float[Tensor, "rows vocab"],
    history: Int[Tensor, "rows length"],
    limits: Limits,
    options: SearchOptions,
) -> Float[Tensor, "rows vocab"]:
    """Apply all constraints; the forced prefix comes last and overrides the others.

    Args:
        log_probs: of the token after `history`; overwritten, since copying a whole vocabulary is expensive.
        history: the tokens of each row so far, without the start token.
        limits: of each row.
        options: suppressed ids, end tokens, and n-grams that must not repeat.
    """
    length, eos_id, no_repeat_ngram = history.size(1), options.eos_id, options.no_repeat_ngram
    is_forced = length < limits.prefix.size(1)
    unbanned = log_probs.clone() if no_repeat_ngram or is_forced else log_probs
    allowed = ban_tokens(log_probs, options.never_generated, limits.min_length <= length, options.ends)
    if no_repeat_ngram:
        before = history.new_tensor(options.ngram_context).expand(len(history), -1)
        allowed = ban_repeated_ngrams(allowed, torch.cat([before, history], 1), no_repeat_ngram)
        allowed = end_if_stuck(allowed, unbanned, eos_id)
    if is_forced:
        allowed = force(allowed, unbanned, limits.prefix[:, length])
    return allowed


def adjust(
    scores: Float[Tensor, "rows vocab"],
    tokens: Int[Tensor, "rows length"],
    repetition_penalty: float,
    sequence_bias: Sequence[tuple[Sequence[int], float]],
) -> Float[Tensor, "rows vocab"]:
    """Add a bias to tokens that complete a sequence; then penalise tokens that occurred.

    The penalty is that of arXiv:1909.05858, section 4.1. As in `transformers`, a negative score is multiplied by it,
    another one is divided by it.

    Args:
        scores: logits or log-probabilities of the token after `tokens`.
        tokens: of the prompt and the output of each row; FREE is none.
        repetition_penalty: above 0; 1 = off.
        sequence_bias: token ids with the bias of the last one after the others; -inf bans it.

    >>> adjust(torch.tensor([[-1.0, 2.0, 3.0]]), torch.tensor([[1, 0]]), 2.0, [((0, 2), 0.5), ((1, 2), 9.0)]).tolist()
    [[-2.0, 1.0, 3.5]]
    """
    if sequence_bias:
        bias = torch.zeros_like(scores)
        for (*before, last), value in sequence_bias:
            if len(before) <= tokens.size(1):
                matches = (tokens[:, tokens.size(1) - len(before) :] == tokens.new_tensor(before)).all(1)
                bias[:, last] += torch.where(matches, value, 0.0)
        scores = scores + bias
    if repetition_penalty != 1:
        nowhere = scores.size(1)  # an extra column, for what is no token of the output
        seen = torch.zeros(len(scores), nowhere + 1, dtype=torch.bool, device=scores.device)
        seen.scatter_(1, tokens.where((tokens >= 0) & (tokens < nowhere), nowhere), True)
        penalised = torch.where(scores < 0, scores * repetition_penalty, scores / repetition_penalty)
        scores = torch.where(seen[:, :nowhere], penalised, scores)
    return scores


def only_choice(log_probs: Float[Tensor, "rows vocab"], token: int) -> Float[Tensor, "rows vocab"]:
    """Probability 1 for `token`, 0 for all others."""
    log_probs = torch.full_like(log_probs, -torch.inf)
    log_probs[:, token] = 0.0
    return log_probs


def ban_tokens(
    log_probs: Float[Tensor, "rows vocab"],
    suppressed: Sequence[int],
    may_end: Bool[Tensor, " rows"],
    ends: Sequence[int],
) -> Float[Tensor, "rows vocab"]:
    """Remove suppressed ids, and end tokens from rows below the minimum length; in place."""
    log_probs.index_fill_(1, torch.tensor(suppressed, dtype=torch.long, device=log_probs.device), -torch.inf)
    for end in ends:
        log_probs[:, end].masked_fill_(~may_end, -torch.inf)
    return log_probs


def ban_repeated_ngrams(
    log_probs: Float[Tensor, "rows vocab"], history: Int[Tensor, "rows length"], n: int
) -> Float[Tensor, "rows vocab"]:
    """Remove tokens that would complete an n-gram of the row's history.

    >>> ban_repeated_ngrams(torch.zeros(1, 4), torch.tensor([[3, 1, 3]]), n=2).tolist()
    [[0.0, -inf, 0.0, 0.0]]
    """
    if history.size(1) < n:
        return log_probs
    ngrams = history.unfold(1, n, 1)  # rows, positions, n
    last = history[:, history.size(1) - n + 1 :]  # start of the n-gram that the next token completes
    repeats = (ngrams[..., : n - 1] == last.unsqueeze(1)).all(-1)
    nowhere = log_probs.size(1)  # an extra column, for positions that ban nothing
    banned = torch.where(repeats, ngrams[..., n - 1], nowhere)
    mask = torch.zeros(len(log_probs), nowhere + 1, dtype=torch.bool, device=log_probs.device)
    mask.scatter_(1, banned, True)
    return log_probs.masked_fill(mask[:, :nowhere], -torch.inf)


def end_if_stuck(
    allowed: Float[Tensor, "rows vocab"], log_probs: Float[Tensor, "rows vocab"], eos_id: int
) -> Float[Tensor, "rows vocab"]:
    """Let a row end, even if it is short, when no other token is allowed."""
    stuck = (allowed == -torch.inf).all(-1)
    allowed = allowed.clone()
    allowed[:, eos_id] = torch.where(stuck, log_probs[:, eos_id], allowed[:, eos_id])
    return allowed


def force(
    allowed: Float[Tensor, "rows vocab"], log_probs: Float[Tensor, "rows vocab"], token: Int[Tensor, " rows"]
) -> Float[Tensor, "rows vocab"]:
    """Allow only the forced token of a row, if it has one, with its own log-probability."""
    vocab = torch.arange(allowed.size(1), device=allowed.device)
    is_forced = vocab == token.unsqueeze(1)
    forced_row = (token != FREE).unsqueeze(1)
    return torch.where(forced_row, log_probs.masked_fill(~is_forced, -torch.inf), allowed)


# Deterministic top-k: the best entries of each row, with ties broken by index.
#
# The order of equal scores in `torch.topk` may change with device, version and width of the row. Here the lower index
# always wins.


def best(
    scores: Float32[Tensor, "rows n"], count: int
) -> tuple[Float32[Tensor, "rows count"], Int64[Tensor, "rows count"]]:
    """The `count` highest scores of each row and their indices; the lower index first among equals.

    >>> best(torch.tensor([[0.5, 0.9, 0.5, 0.9]]), 3)[1].tolist()
    [[1, 3, 0]]
    """
    assert 0 < count <= scores.size(1)
    values, _, index = best_continuations(scores.unsqueeze(1), scores.new_zeros(len(scores), 1), count)
    return values, index


def best_continuations(
    scores: Float32[Tensor, "batch live n"], so_far: Float32[Tensor, "batch live"], count: int
) -> tuple[Float32[Tensor, "batch count"], Int64[Tensor, "batch count"], Int64[Tensor, "batch count"]]:
    """The `count` highest sums of a hypothesis's score `so_far` and an entry: (sums, hypotheses, entries).

    Among equal sums, the lower hypothesis and then the lower entry is first. `count` is at most live * n. Two exact
    stages read the whole vocabulary only once: the best sums lie in the `count` blocks with the best maxima.
    """
    n = scores.size(2)
    maxima = block_maxima(scores)
    blocks = maxima.size(2)
    keys = order_keys((maxima + so_far.unsqueeze(2)).flatten(1))
    chosen = keys.topk(min(count, keys.size(1)), sorted=False).indices.sort(1).values
    parents, first = chosen // blocks, chosen % blocks * BLOCK
    entries = first.unsqueeze(2) + torch.arange(BLOCK, device=scores.device)
    finalists = take_entries(scores.flatten(1), entries + (parents * n).unsqueeze(2))
    finalists += so_far.gather(1, parents).unsqueeze(2)
    if n % BLOCK:
        finalists.masked_fill_(entries >= n, -torch.inf)
    finalists = finalists.flatten(1)
    index = order_keys(finalists).topk(count).indices
    block = index // BLOCK
    # NaN can rank below the -inf beyond the last entry; the clamp keeps indices valid.
    entry = (first.gather(1, block) + index % BLOCK).clamp_(max=n - 1)
    return finalists.gather(1, index), parents.gather(1, block), entry


def highest(scores: Float32[Tensor, "rows n"]) -> Int64[Tensor, " rows"]:
    """The index of the highest score of each row, the lowest such index: `best` for one, in fewer passes.

    >>> highest(torch.tensor([[0.5, 0.9, 0.5, 0.9]])).tolist()
    [1]
    """
    first = block_maxima(scores).argmax(1, keepdim=True) * BLOCK
    block = take_entries(scores, (first + torch.arange(BLOCK, device=scores.device)).unsqueeze(1)).squeeze(1)
    return (first.squeeze(1) + block.argmax(1)).clamp_(max=scores.size(1) - 1)  # argmax returns the first maximum


def block_maxima(scores: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows blocks"]:
    """The highest score of each block of neighbours; the last block may be smaller."""
    whole = scores.size(-1) // BLOCK * BLOCK
    maxima = scores[..., :whole].unflatten(-1, (-1, BLOCK)).amax(-1)
    if whole == scores.size(-1):
        return maxima
    return torch.cat([maxima, scores[..., whole:].amax(-1, keepdim=True)], -1)


def take_entries(
    scores: Float[Tensor, "rows n"], index: Int64[Tensor, "rows blocks entries"]
) -> Float[Tensor, "rows blocks entries"]:
    """The scores at the given indices of each row; indices that are too high select the last score."""
    return scores.gather(1, index.flatten(1).clamp_(max=scores.size(1) - 1)).view_as(index)


def order_keys(scores: Float32[Tensor, "rows n"]) -> Int64[Tensor, "rows n"]:
    """Integers that sort like the scores; among equal scores the earlier one is higher.

    The bits of a float sort like a signed integer once the bits below the sign are flipped for negative numbers
    (IEEE 754). The position goes into the lower half.
    """
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 turns -0.0 into 0.0
    bits ^= (bits >> 31).bitwise_and_(0x7FFFFFFF)
    n = scores.size(1)
    return bits.long().bitwise_left_shift_(32).add_(torch.arange(n - 1, -1, -1, device=scores.device))


def sort_descending(
    scores: Float[Tensor, "batch n"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """`best` for short rows: one stable sort."""
    values, index = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :count], index[:, :count]


# Stopping rules and length penalties of beam search.
#
# `ExactStopping` is the paper's (Wu et al. 2016, arXiv:1609.08144, section 7). `HuggingFaceStopping` is the rule of
# `transformers`, for which the settings of pretrained models were chosen.


@runtime_checkable
class StoppingRule(Protocol):
    """Length penalty and stopping of a beam search; `alpha` is the exponent of the penalty."""

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """The divisor of the log-probability of a hypothesis of this length."""
        ...

    def pool(self, beam_size: int, n_best: int) -> int:
        """The number of finished hypotheses to keep for a sentence."""
        ...

    def n_may_finish(self, beam_size: int, candidates: int) -> int:
        """How many of a step's best candidates may finish; lower-ranked ends are dropped."""
        ...

    def is_done(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """Which sentences are done; both matrices are sorted, best first, and -inf means none."""
        ...


@dataclass(frozen=True)
class ExactStopping:
    """Stops when no live hypothesis can overtake the results; the paper's penalty."""

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """See `length_penalty`."""
        return length_penalty(length, alpha)

    def pool(self, beam_size: int, n_best: int) -> int:
        """The number of results."""
        return n_best

    def n_may_finish(self, beam_size: int, candidates: int) -> int:
        """All of them."""
        return candidates

    def is_done(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """The best possible score of a live hypothesis is its log-probability over the penalty of the maximum length.

        Log-probabilities only fall, and the penalty only grows.
        """
        return live_log_probs.amax(1) / self.penalty(max_length, alpha) <= finished_scores[:, -1]


@dataclass(frozen=True)
class HuggingFaceStopping:
    """Stops when `beam_size` hypotheses have finished and, unless `early`, no live one has a better score.

    This is the rule of `transformers`. Scores are log P(Y|X) / |Y|^alpha. The score of a live hypothesis is estimated
    at its current length, or with `patient` at the maximum length if alpha > 0.

    Args:
        early: `early_stopping=True` of `transformers`.
        patient: `early_stopping="never"` of `transformers`.
        n_forced: forced tokens that the model reads before the search; they count as length.
    """

    early: bool = False
    patient: bool = False
    n_forced: int = 0

    def penalty(self, length: int | Tensor, alpha: float) -> Any:
        """|Y|^alpha; a negative alpha favours short outputs."""
        return power_penalty(length + self.n_forced, alpha)

    def pool(self, beam_size: int, n_best: int) -> int:
        """The beam size."""
        return beam_size

    def n_may_finish(self, beam_size: int, candidates: int) -> int:
        """Only the best `beam_size` candidates."""
        return beam_size

    def is_done(
        self,
        live_log_probs: Float32[Tensor, "batch live"],
        finished_scores: Float32[Tensor, "batch pool"],
        length: int,
        max_length: Int[Tensor, " batch"],
        alpha: float,
    ) -> Bool[Tensor, " batch"]:
        """See the class."""
        full = finished_scores[:, -1] > -torch.inf
        if self.early:
            return full
        reached = max_length if self.patient and alpha > 0 else length
        return full & (live_log_probs.amax(1) / self.penalty(reached, alpha) <= finished_scores[:, -1])


def stopping_rule(options: SearchOptions) -> StoppingRule:
    """The rule that `options.early_stopping` names."""
    if options.early_stopping == "exact":
        return ExactStopping()
    return HuggingFaceStopping(options.early_stopping == "yes", options.early_stopping == "never", options.n_forced)


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
    copy: Int[Tensor, " rows"]  # number of the sample


Pick = Callable[[Tensor, Paths], Tensor]  # log-probabilities (rows, vocab) -> tokens (rows,)


def greedy(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """The most probable token at every step; one hypothesis per sentence."""
    rows = torch.arange(len(limits.max_length), device=limits.max_length.device)
    paths = start_paths(rows, limits, torch.zeros_like(rows))
    return search_steps(step, cache, paths, options, lambda log_probs, _: highest(log_probs))


def start_paths(sentence: Tensor, limits: Limits, copy: Tensor) -> Paths:
    """Empty rows."""
    nothing = sentence.new_zeros(len(sentence), 0)
    return Paths(sentence, nothing, nothing.float(), torch.zeros_like(sentence), limits, copy)


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
        log_probs = next_log_probs(step, cache, flatten_beams(state.tokens), repeat(state.limits, live), options)
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
        log_probs[:, list(options.never_generated)] = -torch.inf  # before what depends on the other tokens
    if options.timestamps:
        log_probs = constrain_timestamps(log_probs, history, options.timestamps, options.eos_id)
    if options.among_allowed:
        log_probs = log_probs.log_softmax(-1)
    if options.forced_end is not None and options.n_forced + length + 1 == options.end_at:
        return only_choice(log_probs, options.forced_end)
    return constrain(log_probs, history, limits, options)


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
    if options.stop_function:
        stops = options.stop_function(tokens.flatten(0, -2).tolist())
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
    without_end = tokens[:-1] if tokens[-1] in options.ends else tokens
    return Hypothesis(list(without_end), score, log_prob, list(token_log_probs))
