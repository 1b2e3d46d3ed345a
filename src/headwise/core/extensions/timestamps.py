"""Whisper's constraints on timestamps (arXiv:2212.04356, section 2.3; `decoding.py` of openai/whisper).

`runtime/native/search.c` has the same for the compiled library.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.contract import TimestampRules


def constrain_timestamps(
    log_probs: Float[Tensor, "rows vocab"], history: Int[Tensor, "rows length"], rules: TimestampRules, end: int
) -> Float[Tensor, "rows vocab"]:
    """Log-probabilities with -inf for what may not follow `history`; overwritten.

    Timestamps come in pairs, the end of a segment and the start of the next one, except the first. They never decrease,
    and the first has a limit. If all timestamps together are more probable than any other token, the next token is one.
    Ids below `end` are text.
    """
    first = rules.first
    log_probs[:, rules.never] = -torch.inf
    if not history.size(1):
        log_probs[:, :first] = -torch.inf
        if rules.latest_first is not None:
            log_probs[:, first + rules.latest_first + 1 :] = -torch.inf
        return log_probs
    is_time = history >= first
    last = is_time[:, -1]
    before = is_time[:, -2] if history.size(1) > 1 else torch.ones_like(last)
    opens, closes = last & before, last & ~before
    earliest = torch.where(is_time, history, first - 1).amax(1) + torch.where(closes, 0, 1)
    ids = torch.arange(log_probs.size(1), device=log_probs.device)
    times = ids >= first
    log_probs.masked_fill_(opens.unsqueeze(1) & times, -torch.inf)
    log_probs.masked_fill_(closes.unsqueeze(1) & (ids < end), -torch.inf)
    log_probs.masked_fill_(times & (ids < earliest.unsqueeze(1)), -torch.inf)
    likely = log_probs[:, first:].logsumexp(1) > log_probs[:, :first].amax(1)
    return log_probs.masked_fill_(likely.unsqueeze(1) & ~times, -torch.inf)
