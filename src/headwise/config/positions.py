"""Sinusoidal positions (section 3.5), rotary rates, buckets of distances: for the compiled library and torch."""

import math

import numpy as np
from numpy.typing import NDArray


def sinusoid_table(start: int, length: int, d_model: int) -> NDArray[np.float32]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same, for `length` positions.

    Computed in float64 and rounded once, so that the encoding of a position does not depend on `length`.
    """
    rate = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    angle = np.arange(start, start + length, dtype=np.float64)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, -1).astype(np.float32)


def halved_sinusoid_table(
    length: int, d_model: int, rate_steps: float | None = None, rounded: bool = False
) -> NDArray[np.float32]:
    """All sines of pos / 10000^(i / rate_steps), then all cosines, where the paper alternates them.

    `rate_steps` is d_model / 2 in the paper (None). tensor2tensor and fairseq have one less, and compute the angles in
    float32 (`rounded`), as models trained with them expect.
    """
    steps = d_model / 2 if rate_steps is None else rate_steps
    kind = np.float32 if rounded else np.float64
    rate = np.exp(np.arange((d_model + 1) // 2) * -(math.log(10000.0) / steps)).astype(kind)
    angle = (np.arange(length, dtype=kind)[:, None] * rate).astype(np.float64)
    return np.concatenate([np.sin(angle), np.cos(angle[:, : d_model // 2])], 1).astype(np.float32)


def distance_buckets(distance: NDArray[np.int64], n_buckets: int, max_distance: int) -> NDArray[np.int64]:
    """The bucket of each distance key - query, for both directions (T5, arXiv:1910.10683, section 2.1).

    As `core.extensions.relative.relative_buckets` with torch, in float32, too.

    >>> distance_buckets(np.array([-200, -9, -1, 0, 1]), 32, 128).tolist()
    [15, 8, 1, 0, 17]
    """
    side, single = n_buckets // 2, n_buckets // 4
    back = np.abs(distance)
    far = np.log(np.maximum(back, 1).astype(np.float32) / np.float32(single)) / np.float32(
        math.log(max_distance / single)
    )
    wide = single + (far * np.float32(side - single)).astype(np.int64).clip(0, side - single - 1)
    return (distance > 0) * side + np.where(back < single, back, wide)


def rotary_frequencies(width: int, base: float = 10000.0) -> NDArray[np.float32]:
    """base^(-2i/width): the rotation of each of the width / 2 pairs of a head, radians a position."""
    return (base ** (-np.arange(0, width, 2, dtype=np.float64) / width)).astype(np.float32)


def scaled_rates(
    width: int, base: float, scaling: str, factor: float, low: float, high: float, trained_len: int
) -> NDArray[np.float32]:
    """The rates of a `RotaryConfig`; "linear" scaling is position interpolation (arXiv:2306.15595)."""
    rates = rotary_frequencies(width, base)
    if scaling == "llama3":
        return llama3_rates(rates, factor, low, high, trained_len)
    return {"none": rates, "linear": rates / np.float32(factor)}[scaling]


def llama3_rates(
    rates: NDArray[np.float32], factor: float, low: float, high: float, trained_len: int
) -> NDArray[np.float32]:
    """LLaMA 3.1's scaling: slow pairs are divided by `factor`, fast ones stay, those between are interpolated.

    A pair is slow when it turns fewer than `low` times in `trained_len` positions, fast when more than `high`
    times.
    """
    turns = trained_len * rates / np.float32(2 * math.pi)
    share = ((turns - low) / np.float32(high - low)).clip(0, 1)
    return (1 - share) * rates / np.float32(factor) + share * rates
