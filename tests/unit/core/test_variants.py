"""The families' variants of the paper's modules, compared with formulas or with the paper's module."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise.config.positions import llama3_rates
from headwise.core.attention import Capped, DotProduct, Windowed, scaled_dot_product_attention
from headwise.core.cache import TextCache
from headwise.core.extensions.relative import RelativeBias, relative_buckets
from headwise.core.extensions.rotary import Rotary, rotary_rates
from headwise.core.layers import RMSNorm, ShiftedRMSNorm
from headwise.core.masks import Causal, Everywhere, causal_mask
from headwise.core.positions import (
    LearnedPositions,
    PositionsWithoutPadding,
    SinusoidalPositions,
    halved_sinusoids,
    sinusoids,
)

CPU = torch.device("cpu")


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


# --- Attention ---


def heads(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    n_heads, kv_heads, queries, keys = shape
    return torch.randn(2, n_heads, queries, 4), torch.randn(2, kv_heads, keys, 4), torch.randn(2, kv_heads, keys, 4)


@pytest.mark.parametrize("n_heads", [6, 3])
def test_grouped_query_attention_repeats_heads(n_heads: int) -> None:
    q, k, v = heads(n_heads, 3, 5, 5)
    mask = causal_mask(5, 5, CPU)[None, None]
    repeated = [x.repeat_interleave(n_heads // 3, 1) for x in (k, v)]
    expected = scaled_dot_product_attention(q, *repeated, mask)[0]
    for kernel in (DotProduct(), DotProduct(0.5), Capped(0.5, 1e6), Windowed(DotProduct(), 5)):
        close(kernel(q, k, v, mask), expected)
        close(kernel.weights(q, k, mask) @ repeated[1], expected)


def test_capped_scores_stay_below_the_cap() -> None:
    q, k, v = heads(1, 1, 3, 3)
    scores = 2.0 * torch.tanh(10 * q @ k.transpose(-2, -1) / 2.0)
    close(Capped(10.0, 2.0)(q, k, v, None), scores.softmax(-1) @ v)


def test_sliding_window() -> None:
    windowed = Windowed(DotProduct(), 2)
    q, k, v = heads(1, 1, 4, 4)
    whole = windowed.weights(q, k, causal_mask(4, 4, CPU)[None, None])
    assert whole[0, 0].gt(0).long().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert windowed.weights(q[:, :, 3:], k, None)[0, 0, 0].gt(0).tolist() == [False, False, True, True]
    assert torch.equal(
        windowed(q[:, :, :1], k[:, :, :2], v[:, :, :2], None), DotProduct()(q[:, :, :1], k[:, :, :2], v[:, :, :2], None)
    )


def test_reach() -> None:
    mask = torch.tensor([[True, True, False]])
    assert Everywhere()(None, 0, 3, CPU) is None
    assert Causal()(None, 2, 1, CPU) is None
    assert Causal()(mask, 0, 3, CPU)[0, 0].long().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    assert Causal()(mask, 2, 1, CPU).flatten().tolist() == mask.flatten().tolist()


# --- Norms ---


def test_rms_norms() -> None:
    x = torch.randn(2, 3, 8)
    expected = x / (x.pow(2).mean(-1, keepdim=True) + 0.1).sqrt()
    norm, shifted = RMSNorm(8, 0.1), ShiftedRMSNorm(8, 0.1)
    with torch.no_grad():
        norm.weight.copy_(torch.arange(8.0))
        shifted.weight.copy_(torch.arange(8.0))
    close(norm(x), expected * torch.arange(8.0))
    close(shifted(x), expected * torch.arange(1.0, 9.0))


def test_small_shifts_count_in_half_precision() -> None:
    """1 + 0.003 is 1 in bfloat16, but not every product with it is x."""
    shifted, x = ShiftedRMSNorm(64, 0.0).bfloat16(), torch.randn(4, 64).bfloat16()
    with torch.no_grad():
        shifted.weight.fill_(0.003)
    exact = (1 + shifted.weight.float()) * x.float() / x.float().pow(2).mean(-1, keepdim=True).sqrt()
    assert torch.equal(shifted(x), exact.bfloat16())


# --- Positions ---


def test_halved_sinusoids_are_the_papers_in_another_order() -> None:
    paper, halved = sinusoids(50, 12), halved_sinusoids(50, 12)
    close(halved, torch.cat([paper[:, 0::2], paper[:, 1::2]], 1))


def test_sinusoids_grow_and_know_padding() -> None:
    positions = SinusoidalPositions(8, halved_sinusoids, offset=3)
    position_ids = torch.tensor([[-1, 0, 600]])
    codes = positions(position_ids, 601)
    assert codes[0, 0].eq(0).all()
    close(codes[0, 1:], halved_sinusoids(604, 8)[[3, 603]])


def test_positions_without_padding_skip_padding_and_continue() -> None:
    table, count = LearnedPositions(4, 6, offset=2), PositionsWithoutPadding(pad_id=1)
    tokens = torch.tensor([[1, 5, 1, 6]])
    rows = table.table.weight
    assert torch.equal(table(*count(tokens, 0))[0], rows[[1, 2, 1, 3]])
    assert torch.equal(table(*count(tokens[:, 1:2], 3))[0], rows[[5]])
    assert torch.equal(table(*count(tokens[:, 1:2], torch.tensor([[3]])))[0], rows[[5]])


def test_rotary_products_depend_on_distance_alone() -> None:
    rotate = Rotary(rotary_rates(6, 100.0))
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    products = [(rotate(q, start + 3) * rotate(k, start)).sum() for start in (0, 1, 200)]
    close(products[0], products[1])
    close(products[0], products[2])
    assert torch.equal(rotate(q, 7)[..., 6:], q[..., 6:])
    turned, (cos, sin) = rotate(q, 2), (math.cos(2), math.sin(2))
    close(turned[..., 0], q[..., 0] * cos - q[..., 3] * sin)


def test_half_precision_leaves_angles_alone() -> None:
    """A rate rounded to 8 bits would be half a turn off after a few hundred positions."""
    exact, rounded = Rotary(rotary_rates(8, 1e4)), Rotary(rotary_rates(8, 1e4)).bfloat16()
    x = torch.randn(1, 1, 1, 8)
    torch.testing.assert_close(rounded(x.bfloat16(), 3000).float(), exact(x, 3000), atol=0.05, rtol=0.05)


def test_llama3_slows_slow_pairs_only() -> None:
    rates = np.float32([1.0, 2 * math.pi * 2.5 / 100, 1e-3])  # in 100 positions 16, 2.5 and 0.02 turns
    shares = llama3_rates(rates, 8.0, 1.0, 4.0, 100) / rates
    np.testing.assert_allclose(shares, [1.0, 0.5 + 0.5 / 8, 1 / 8], rtol=1e-6)


def test_relative_buckets_bidirectional() -> None:
    distance = torch.tensor([-100, -20, -3, -1, 0, 1, 3, 20, 100])
    assert relative_buckets(distance, 16, 40, bidirectional=True).tolist() == [7, 6, 3, 1, 0, 9, 11, 14, 15]


def test_relative_bias_of_a_step_is_the_last_row_of_the_whole() -> None:
    bias = RelativeBias(2, 8, 10, bidirectional=False, reach=Causal())
    whole = bias(None, 0, 6, CPU)
    close(bias(None, 5, 1, CPU), whole[:, :, -1:])
    assert whole[0, 0, 0, 1] == torch.finfo(torch.float32).min


# --- The cache of a decoder alone ---


def test_position_ids_with_left_padding() -> None:
    cache = TextCache.start(torch.tensor([0, 2]), n_layers=1)
    assert cache.position_ids(3).tolist() == [[0, 1, 2], [0, 0, 0]]
    assert cache.real(3).long().tolist() == [[1, 1, 1], [0, 0, 1]]
    cache.length = 3
    assert cache.position_ids(1).tolist() == [[3], [1]]
    cache.select(torch.tensor([0, 0]))
    assert cache.real(1) is None
