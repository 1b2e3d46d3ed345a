"""A decoder alone writes on: prompts to what follows them, and how probable it finds a text.

Prompts of different lengths are padded on the left, so that all outputs begin in one column; padding is seen by nobody.
Not here: text between stop strings (`stopping`), chats (`chat`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.checkpoint.generation_config import GenerationConfig
from headwise.contract import Hypothesis, Stop
from headwise.decode.request import not_finite, search_options
from headwise.decode.search import Step
from headwise.errors import UserError
from headwise.generation.decoding import begin_generation, in_batches, limits_of, search, stream, streams_of


@runtime_checkable
class Onward(Protocol):
    """A network that predicts the next token of a text: `DecoderOnly`, or what reads as one."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def start_cache(self, padding: Tensor) -> Any: ...
    def decode(self, tokens: Tensor, cache: Any = None) -> Tensor: ...
    def logits(self, hidden: Tensor) -> Tensor: ...


def text_step(network: Onward) -> Step:
    """Feed the newest tokens, get the logits that follow them."""

    def step(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        return network.logits(network.decode(tokens, cache)[:, -1])

    return step


@torch.inference_mode()
def write_on(
    network: Onward,
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
    max_len: int | None = None,
    stop: Stop | None = None,
) -> list[list[Hypothesis]]:
    """What follows each prompt, best first, in the order of the prompts.

    Args:
        prompts: token ids, at least one each.
        max_len: the longest text the network can take, where it has a limit (learned positions).
        stop: says which rows are to end.

    Raises:
        UserError: a prompt leaves no room, or the network gives numbers that are not finite.
    """
    step, device = text_step(network), next(network.parameters()).device

    def work(batch: list[Sequence[int]]) -> list[list[Hypothesis]]:
        limits = limits_of([room_after(prompt, max_len) for prompt in batch], config, device)
        tokens, padding = pad_left(batch, config.special.pad_id)
        begun = begin_generation(step, network.start_cache(padding.to(device)), tokens.to(device))
        options = search_options(config.settings, config.special, stop=stop)
        return search(step, begun, limits, options, config.settings.sample, streams_of(batch))

    return in_batches(prompts, config.settings.batch_size, work)


@torch.inference_mode()
def stream_on(
    network: Onward, prompt: Sequence[int], config: GenerationConfig, max_len: int | None = None
) -> Iterator[int]:
    """The tokens that follow one prompt, one by one, without the end mark; the same ones as `write_on` has."""
    step, device = text_step(network), next(network.parameters()).device
    limits = limits_of([room_after(prompt, max_len)], config, device)
    cache = network.start_cache(torch.zeros(1, dtype=torch.long, device=device))
    begun = begin_generation(step, cache, torch.tensor([list(prompt)], device=device))
    options, streams = search_options(config.settings, config.special), streams_of([prompt])
    yield from stream(step, begun, limits, options, config.settings.sample, streams)


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Int[Tensor, "rows length"], Int[Tensor, " rows"]]:
    """Prompts as one matrix, and how much padding stands before each.

    >>> pad_left([[5, 6], [7]], pad_id=0)
    (tensor([[5, 6],
            [0, 7]]), tensor([0, 1]))
    """
    longest = max(len(prompt) for prompt in prompts)
    rows = [[*[pad_id] * (longest - len(prompt)), *prompt] for prompt in prompts]
    return torch.tensor(rows), torch.tensor([longest - len(prompt) for prompt in prompts])


def room_after(prompt: Sequence[int], max_len: int | None) -> int | None:
    """How many tokens may follow; the last of them need not be read, so one more than there are positions."""
    if not len(prompt):
        raise UserError("a prompt without any token: this model has no mark for the beginning of a text, so begin it")
    if max_len is None:
        return None
    if len(prompt) > max_len:
        raise UserError(f"a prompt of {len(prompt):,} tokens is longer than the model's {max_len:,} positions")
    return max_len - len(prompt) + 1


# --- How probable a text is ---


@dataclass(frozen=True)
class Perplexity:
    """How well a text was predicted."""

    log_prob: float  # natural log, of all tokens that were predicted
    tokens: int  # how many those are: all but the first

    @property
    def perplexity(self) -> float:
        """exp(- mean log-probability of a token); infinite where that no longer fits into a float."""
        entropy = -self.log_prob / self.tokens
        return math.exp(entropy) if entropy < 709 else math.inf


@torch.inference_mode()
def perplexity(network: Onward, tokens: Sequence[int], window: int, stride: int) -> Perplexity:
    """The perplexity of a text that may be longer than the network reads at once.

    It is read in windows, each `stride` tokens after the last; every token is predicted once, in the first window that
    has it, and so from at least `window - stride` tokens before it (but for those of the first window).

    Raises:
        UserError: fewer than two tokens, a stride that would leave some out, or a damaged model: it gives NaN.
    """
    if len(tokens) < 2:
        raise UserError("a text of fewer than two tokens has no perplexity: the first one is given, not predicted")
    if not 1 <= stride <= window - 1:
        raise UserError(f"stride = {stride}: must be at least 1 and at most {window - 1}, less than a window")
    device, total, done = next(network.parameters()).device, 0.0, 1
    for start in range(0, len(tokens), stride):
        end = min(start + window, len(tokens))
        part = torch.tensor([tokens[start:end]], device=device)
        hidden = network.decode(part[:, :-1])[:, done - start - 1 :]
        log_probs = network.logits(hidden).log_softmax(-1, dtype=torch.float32)
        total += float(log_probs.gather(-1, part[:, done - start :, None]).sum(dtype=torch.float64))
        done = end
        if end == len(tokens):
            break
    if math.isnan(total):
        raise not_finite()
    return Perplexity(total, len(tokens) - 1)
