"""Decoding step by step with torch for somebody who looks on: a beam's tree, a stream of tokens.

For every model that does not search by itself. Not here: decoding whole batches (`steps`).
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sightline.contract import Continuation, EncoderDecoder, Hypothesis, Look, SearchOptions
from sightline.decode.constraints import Limits
from sightline.decode.ranking import highest
from sightline.decode.request import Asked, not_finite, search_options
from sightline.decode.search import Cache, Continuations, Step, beam_search, next_log_probs
from sightline.decode.steps import Start, evaluating, start_decoding


def watched_by_steps(model: EncoderDecoder, asked: Asked, look: Look) -> Hypothesis:
    """As `translator.Translator.watched`."""
    with evaluating(model), torch.inference_mode():
        return watched(start_decoding(model, asked), search_options(asked.config, asked.special), look)


@torch.inference_mode()
def watched(start: Start, options: SearchOptions, look: Look) -> Hypothesis:
    """The best of what a search for one source finds, while `look` is shown each step; `begun` are the first."""
    for token in start.begun:
        look([Continuation(token, 0, 0, 0.0, 0.0)])
    found = beam_search(start.step, start.cache, start.limits, options, lambda ranked: look(_listed(ranked)))[0]
    if not (found and math.isfinite(found[0].log_prob)):
        raise not_finite()
    return found[0]


def _listed(ranked: Continuations) -> list[Continuation]:
    """Of the only sentence, without what cannot be."""
    last = (
        ranked.tokens[0, :, -1],
        ranked.parents[0],
        ranked.ended[0],
        ranked.log_probs[0],
        ranked.token_log_probs[0, :, -1],
    )
    rows = zip(*(column.tolist() for column in last), strict=True)
    return [Continuation(*row) for row in rows if row[3] > -math.inf]


@torch.inference_mode()
def greedy_by_steps(model: EncoderDecoder, asked: Asked) -> Iterator[int]:
    """As `streaming.stream_tokens`."""
    start, options = start_decoding(model, asked), search_options(asked.config, asked.special)
    yield from written_by_steps(start.step, start.cache, start.limits, options, lambda log_probs, _: highest(log_probs))


@torch.inference_mode()
def written_by_steps(
    step: Step, cache: Cache, limits: Limits, options: SearchOptions, choose: Callable[[Tensor, int], Tensor]
) -> Iterator[int]:
    """The tokens of a single row until it ends, without the end mark.

    `choose` names the next one, (1,), from log-probabilities (1, vocab) and its position in the output.
    """
    history = limits.max_length.new_zeros(1, 0)
    while history.size(1) < int(limits.max_length):
        log_probs = next_log_probs(step, cache, history, limits, options)
        token = choose(log_probs, history.size(1))
        if not bool(log_probs[0, token].isfinite()):
            raise not_finite()
        if int(token) in (options.eos_id, *options.other_ends):
            return
        yield int(token)
        history = torch.cat([history, token.unsqueeze(1)], 1)
