"""Causal language models on token ids: continuations of prompts, and perplexity.

The network is a `contract.TextNetwork`, in the compiled library (`models.language.language_model`) or in torch
(`pytorch.models.language_model`). See `headwise.runtime.search.streaming` for stop strings and `chat` for chats.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from headwise.contract import Hypothesis, Limits, Stop, TextNetwork
from headwise.errors import UserError
from headwise.evaluate.language import Perplexity
from headwise.models.language.limits import output_bounds
from headwise.runtime.checkpoint.generation_config import GenerationConfig
from headwise.runtime.search.request import non_finite_error, random_stream, search_options


def continue_prompts(
    network: TextNetwork,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
    max_len: int | None = None,
    stop: Stop | None = None,
) -> list[list[Hypothesis]]:
    """The continuations of each prompt, best first, in the order of the prompts.

    Args:
        prompts: token ids, at least one each.
        max_len: the limit of the network in positions, if it has one.
        stop: says which rows must end.

    Raises:
        UserError: a prompt leaves no room, or the network returns numbers that are not finite.
    """
    options = search_options(config.settings, config.special, stop_function=stop)

    def search_batch(batch: list[Sequence[int]]) -> list[list[Hypothesis]]:
        found = network.search(batch, text_bounds(batch, config, max_len), options)
        if not all(ranked and math.isfinite(ranked[0].log_prob) for ranked in found):
            raise non_finite_error()
        return found

    return search_in_batches(prompts, config.settings.batch_size, search_batch)


def stream_continuation(
    network: TextNetwork, prompt: Sequence[int], config: GenerationConfig, max_len: int | None = None
) -> Iterator[int]:
    """The tokens of `continue_prompts` for one prompt, one by one, without the end token."""
    options = search_options(config.settings, config.special)
    yield from network.stream(prompt, text_bounds([prompt], config, max_len), options)


def text_bounds(prompts: Sequence[Sequence[int]], config: GenerationConfig, max_len: int | None) -> Limits:
    """The length limits of continuations, with random streams of the prompts if they are sampled."""
    bounds = output_bounds([room_after(prompt, max_len) for prompt in prompts], config, prompts)
    if not config.settings.sample:
        return bounds
    return replace(bounds, streams=np.array([random_stream(prompt) for prompt in prompts], np.int64))


def search_in_batches(
    inputs: Sequence[Sequence[int]],
    batch_size: int,
    search_batch: Callable[[list[Sequence[int]]], list[list[Hypothesis]]],
) -> list[list[Hypothesis]]:
    """The hypotheses of each input, in order; batches have inputs of similar length, the longest first."""
    order = sorted(range(len(inputs)), key=lambda i: -len(inputs[i]))
    found: list[list[Hypothesis]] = [[] for _ in inputs]
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        for i, hypotheses in zip(batch, search_batch([inputs[i] for i in batch]), strict=True):
            found[i] = hypotheses
    return found


def room_after(prompt: Sequence[int], max_len: int | None) -> int | None:
    """The number of tokens that may follow: one more than there are positions, because the last one is not read."""
    if not len(prompt):
        raise UserError("an empty prompt: this model has no start token, so the prompt needs text")
    if max_len is None:
        return None
    if len(prompt) > max_len:
        raise UserError(f"a prompt of {len(prompt):,} tokens is longer than the model's {max_len:,} positions")
    return max_len - len(prompt) + 1


def perplexity(network: TextNetwork, tokens: Sequence[int], window: int, stride: int) -> Perplexity:
    """The perplexity of a text in sliding windows (https://huggingface.co/docs/transformers/perplexity).

    Each window starts `stride` tokens after the last. Every token is predicted once, in the first window that has it,
    and so from at least `window - stride` tokens, except in the first window.

    Raises:
        UserError: fewer than two tokens, a stride that would skip some, or a model that returns NaN.
    """
    if len(tokens) < 2:
        raise UserError("perplexity needs at least two tokens: the first one is not predicted")
    if not 1 <= stride <= window - 1:
        raise UserError(f"stride = {stride}: must be from 1 to {window - 1}, less than a window")
    windows, firsts, done = list[Sequence[int]](), list[int](), 1
    for start in range(0, len(tokens), stride):
        windows.append(tokens[start : start + window])
        firsts.append(done - start)
        done = min(start + window, len(tokens))
        if done == len(tokens):
            break
    total = math.fsum(float(found.sum(dtype=np.float64)) for found in network.log_probs(windows, firsts))
    if math.isnan(total):
        raise non_finite_error()
    return Perplexity(total, len(tokens) - 1, window, stride)
