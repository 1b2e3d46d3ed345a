"""Reproducible sampling with temperature, top-k and top-p.

Every sentence has its own random stream, so its sample does not depend on the batch. The random number for (seed,
stream, copy, position) is a hash of these four numbers, not the next state of a shared generator.
"""

import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from headwise.contract import Hypothesis, Limits, SearchOptions
from headwise.core.search import Cache, Paths, Step, repeat, search_steps, start_paths


def sample(step: Step, cache: Cache, limits: Limits, options: SearchOptions) -> list[list[Hypothesis]]:
    """`options.n_best` independent samples per sentence, best score first.

    `limits.streams` numbers the random stream of each sentence. Scores do not depend on the temperature.
    """
    batch, device = len(limits.streams), limits.streams.device
    sentence = torch.arange(batch, device=device).repeat_interleave(options.n_best)
    copy = torch.arange(options.n_best, device=device).repeat(batch)
    if options.n_best > 1:
        cache.select(sentence)
    paths = start_paths(sentence, repeat(limits, options.n_best), copy)

    def pick(log_probs: Tensor, paths: Paths) -> Tensor:
        uniforms = stream_uniforms(options.seed, paths.limits.streams, paths.copy, paths.tokens.size(1))
        return sample_token(log_probs, uniforms, options)

    found = search_steps(step, cache, paths, options, pick)
    return [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in found]


def sample_token(
    log_probs: Float[Tensor, "rows vocab"], uniforms: Float[Tensor, " rows"], options: SearchOptions
) -> Int[Tensor, " rows"]:
    """One sampled token per row. `log_probs` need not be normalised; -inf is chosen only if there is nothing else."""
    scaled = log_probs / options.temperature
    if options.top_k:
        scaled = keep_top_k(scaled, options.top_k)
    if options.top_p < 1:
        scaled = keep_top_p(scaled, options.top_p)
    return invert_cdf(scaled.softmax(-1), uniforms)


def keep_top_k(logits: Float[Tensor, "rows vocab"], k: int) -> Float[Tensor, "rows vocab"]:
    """The k highest of each row, and ties with the k-th; the rest is -inf.

    >>> keep_top_k(torch.tensor([[0.0, 2.0, 1.0]]), 2).tolist()
    [[-inf, 2.0, 1.0]]
    """
    kth = logits.topk(min(k, logits.size(1))).values[:, -1:]
    return logits.masked_fill(logits < kth, -torch.inf)


def keep_top_p(logits: Float[Tensor, "rows vocab"], p: float) -> Float[Tensor, "rows vocab"]:
    """The smallest set of most probable tokens with total probability p or more; the rest is -inf.

    >>> keep_top_p(torch.tensor([[2.0, 1.0, 0.0]]), 0.7).tolist()  # probabilities 0.67, 0.24, 0.09
    [[2.0, 1.0, -inf]]
    """
    ordered, index = logits.sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(-1)
    mass_before = probs.cumsum(-1) - probs
    outside = torch.zeros_like(logits, dtype=torch.bool).scatter(1, index, mass_before >= p)
    return logits.masked_fill(outside, -torch.inf)


def invert_cdf(probs: Float[Tensor, "rows vocab"], uniforms: Float[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """The first token whose cumulative probability exceeds the uniform number, which lies in [0, 1).

    >>> invert_cdf(torch.tensor([[0.25, 0.0, 0.75]]), torch.tensor([0.25])).tolist()
    [2]
    """
    cdf = probs.double().cumsum(-1)
    total = cdf[:, -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))  # guards against rounding
    target = torch.minimum(uniforms.double().unsqueeze(1) * total, below_total)
    token = torch.searchsorted(cdf, target, right=True).squeeze(1)
    return token.clamp(max=probs.size(1) - 1)  # keeps the id valid for NaN


def stream_uniforms(
    seed: int, streams: Int64[Tensor, " rows"], copies: Int64[Tensor, " rows"], position: int
) -> Float64[Tensor, " rows"]:
    """Uniform numbers in [0, 1), functions of (seed, stream, copy, position)."""
    state = mix(torch.full_like(streams, _signed(seed)))
    for part in (streams, copies, torch.full_like(streams, position)):
        state = mix(state ^ part)
    return _shift_right(state, 11).double() * 2.0**-53


def mix(x: Int64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
    """One step of SplitMix64 (https://prng.di.unimi.it/splitmix64.c), a bijection; int64 wraps around."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift_right(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift (torch shifts arithmetically)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    """The int64 with the same lowest 64 bits."""
    return (x + 2**63) % 2**64 - 2**63
