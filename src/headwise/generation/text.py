"""Causal language models on token ids: continuations of prompts, and perplexity.

Prompts of different lengths are padded on the left, so that all outputs start in one column; padding is masked. Not
here: stop strings (`headwise.decode.streaming`), chats (`chat`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.checkpoint.generation_config import GenerationConfig
from headwise.contract import Hypothesis, Stop
from headwise.decode.request import non_finite_error, search_options
from headwise.decode.search import Step
from headwise.errors import UserError
from headwise.evaluate.language import Perplexity
from headwise.generation.decoding import output_limits, prefill, random_streams, search, search_in_batches, stream

LOGITS = 512  # positions whose logits are computed at once: the memory of a long window, by the vocabulary


@runtime_checkable
class CausalNetwork(Protocol):
    """A network that predicts the next token of a text: `DecoderOnly` or `LeftToRight`."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def start_cache(self, padding: Tensor) -> Any: ...
    def decode(self, tokens: Tensor, cache: Any = None) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


def text_step(network: CausalNetwork) -> Step:
    """A step of the search: from new tokens to the logits of the next one."""

    def step(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        return network.logits(network.decode(tokens, cache)[:, -1])

    return step


@torch.inference_mode()
def continue_prompts(
    network: CausalNetwork,
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
    step, device = text_step(network), next(network.parameters()).device

    def search_batch(batch: list[Sequence[int]]) -> list[list[Hypothesis]]:
        limits = output_limits([room_after(prompt, max_len) for prompt in batch], config, device)
        tokens, padding = pad_left(batch, config.special.pad_id)
        prefilled = prefill(step, network.start_cache(padding.to(device)), tokens.to(device))
        options = search_options(config.settings, config.special, stop=stop)
        return search(step, prefilled, limits, options, config.settings.sample, random_streams(batch))

    return search_in_batches(prompts, config.settings.batch_size, search_batch)


@torch.inference_mode()
def stream_continuation(
    network: CausalNetwork, prompt: Sequence[int], config: GenerationConfig, max_len: int | None = None
) -> Iterator[int]:
    """The tokens of `continue_prompts` for one prompt, one by one, without the end token."""
    step, device = text_step(network), next(network.parameters()).device
    limits = output_limits([room_after(prompt, max_len)], config, device)
    cache = network.start_cache(torch.zeros(1, dtype=torch.long, device=device))
    prefilled = prefill(step, cache, torch.tensor([list(prompt)], device=device))
    options, streams = search_options(config.settings, config.special), random_streams([prompt])
    yield from stream(step, prefilled, limits, options, config.settings.sample, streams)


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Int[Tensor, "rows length"], Int[Tensor, " rows"]]:
    """Prompts as one matrix, and the padding before each.

    >>> pad_left([[5, 6], [7]], pad_id=0)
    (tensor([[5, 6],
            [0, 7]]), tensor([0, 1]))
    """
    longest = max(len(prompt) for prompt in prompts)
    rows = [[*[pad_id] * (longest - len(prompt)), *prompt] for prompt in prompts]
    return torch.tensor(rows), torch.tensor([longest - len(prompt) for prompt in prompts])


def room_after(prompt: Sequence[int], max_len: int | None) -> int | None:
    """How many tokens may follow; one more than there are positions, because the network does not read the last."""
    if not len(prompt):
        raise UserError("an empty prompt: this model has no start token, so the prompt needs text")
    if max_len is None:
        return None
    if len(prompt) > max_len:
        raise UserError(f"a prompt of {len(prompt):,} tokens is longer than the model's {max_len:,} positions")
    return max_len - len(prompt) + 1


@torch.inference_mode()
def perplexity(network: CausalNetwork, tokens: Sequence[int], window: int, stride: int) -> Perplexity:
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
    device, total, done = next(network.parameters()).device, 0.0, 1
    for start in range(0, len(tokens), stride):
        end = min(start + window, len(tokens))
        part = torch.tensor([tokens[start:end]], device=device)
        hidden = network.decode(part[:, :-1])[:, done - start - 1 :]
        total += _log_prob(network, hidden, part[:, done - start :])
        done = end
        if end == len(tokens):
            break
    if math.isnan(total):
        raise non_finite_error()
    return Perplexity(total, len(tokens) - 1, window, stride)


def _log_prob(
    network: CausalNetwork, hidden: Float[Tensor, "1 length d_model"], targets: Int[Tensor, "1 length"]
) -> float:
    """The log-probability of the targets together."""
    total = 0.0
    for part, tokens in zip(hidden.split(LOGITS, 1), targets.split(LOGITS, 1), strict=True):
        logits = network.logits(part)
        log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        total += float(log_probs.gather(-1, tokens.unsqueeze(-1)).sum(dtype=torch.float64))
    return total
