"""Constraints on outputs: lengths, forced prefix, suppressed tokens, repeated n-grams; biases and penalties.

They are functions on the log-probabilities of the next token. Forbidden tokens get -inf; others keep their probability,
so that scores remain those of the model. Only `adjust` changes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.contract import FREE

Record = TypeVar("Record")


@dataclass(frozen=True)
class Limits:
    """Limits of each output, in tokens; the maximum length includes the end token, the minimum does not."""

    min_length: Int[Tensor, " rows"]
    max_length: Int[Tensor, " rows"]  # at least 1
    prefix: Int[Tensor, "rows prefix_len"]  # padded with FREE on the right
    barred: Bool[Tensor, "rows vocab"] | None = None  # tokens outside a row's shortlist
    phrases: Int[Tensor, "rows phrases phrase_len"] | None = None  # required phrases, padded with FREE; see `phrases`
    context: Int[Tensor, "rows context_len"] | None = None  # tokens before the output for `adjust`, FREE on the left

    def repeat(self, times: int) -> "Limits":
        """Each row repeated `times` times: one for each hypothesis of a sentence."""
        return self if times == 1 else self._each(lambda of_rows: of_rows.repeat_interleave(times, 0))

    def to(self, device: torch.device) -> "Limits":
        """A copy on another device."""
        return self._each(lambda of_rows: of_rows.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Limits":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(value) for name, value in values.items() if value is not None})


def take(record: Record, rows: Int[Tensor, " kept"]) -> Record:
    """A copy of the record with only the given rows of its tensors."""
    assert is_dataclass(record) and not isinstance(record, type)
    kept = {f.name: _take_value(getattr(record, f.name), rows) for f in fields(record)}
    return replace(record, **kept)


def _take_value(value: object, rows: Tensor) -> object:
    if value is None:
        return None
    return value.index_select(0, rows) if isinstance(value, Tensor) else take(value, rows)


def constrain(
    log_probs: Float[Tensor, "rows vocab"],
    history: Int[Tensor, "rows length"],
    limits: Limits,
    suppressed: Sequence[int],
    no_repeat_ngram: int,
    eos_id: int,
    other_ends: Sequence[int] = (),
    ngram_context: Sequence[int] = (),
) -> Float[Tensor, "rows vocab"]:
    """Apply all constraints; the forced prefix comes last and overrides the others.

    Args:
        log_probs: of the token after `history`; overwritten, since copying a whole vocabulary is expensive.
        history: the tokens of each row so far, without the start token.
        limits: of each row.
        suppressed: ids that are never generated: padding, start token, unknown.
        no_repeat_ngram: n, or 0 to allow repetition.
        eos_id: the end token.
        other_ends: further end tokens.
        ngram_context: tokens before the history that are part of its n-grams.
    """
    length = history.size(1)
    is_forced = length < limits.prefix.size(1)
    unbanned = log_probs.clone() if no_repeat_ngram or is_forced else log_probs
    allowed = ban_tokens(log_probs, suppressed, limits.min_length <= length, eos_id, other_ends)
    if no_repeat_ngram:
        before = history.new_tensor(ngram_context).expand(len(history), -1)
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
    eos_id: int,
    other_ends: Sequence[int] = (),
) -> Float[Tensor, "rows vocab"]:
    """Remove suppressed ids, and end tokens from rows below the minimum length; in place."""
    log_probs.index_fill_(1, torch.tensor(suppressed, dtype=torch.long, device=log_probs.device), -torch.inf)
    for end in (eos_id, *other_ends):
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
