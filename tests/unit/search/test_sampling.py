"""Filters, sampling from a distribution, and the hash for the random stream of each sentence."""

import math

import pytest
import torch

from headwise.contract import SearchOptions
from headwise.core.extensions.sampling import (
    invert_cdf,
    keep_top_k,
    keep_top_p,
    mix,
    sample_token,
    stream_uniforms,
)

PROBS = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]])


def kept(logits: torch.Tensor) -> list[list[int]]:
    return [[i for i, value in enumerate(row) if value > -math.inf] for row in logits.tolist()]


@pytest.mark.parametrize(("k", "expected"), [(1, [1]), (2, [1, 3]), (9, [0, 1, 2, 3])])
def test_top_k(k, expected):
    assert kept(keep_top_k(PROBS.log(), k))[0] == expected


@pytest.mark.parametrize(
    ("p", "expected"), [(1e-9, [1]), (0.39, [1]), (0.41, [1, 3]), (0.71, [1, 2, 3]), (0.95, [0, 1, 2, 3])]
)
def test_top_p_is_the_smallest_set_with_that_mass(p, expected):
    assert kept(keep_top_p(PROBS.log(), p))[0] == expected


def test_top_p_breaks_ties_by_the_lower_id():
    assert kept(keep_top_p(PROBS.log(), 0.3))[1] == [0, 1]


def test_invert_cdf_samples_in_proportion_and_never_impossible_tokens():
    probs = torch.tensor([[0.0, 0.5, 0.0, 0.25, 0.25, 0.0]])
    uniforms = torch.linspace(0, 1, 1001)[:-1]
    tokens = invert_cdf(probs.expand(1000, -1), uniforms)
    assert torch.bincount(tokens, minlength=6).tolist() == pytest.approx([0, 500, 0, 250, 250, 0], abs=1)
    assert not {0, 2, 5} & set(tokens.tolist())
    almost_one = torch.tensor([1 - 2**-53], dtype=torch.float64)
    assert invert_cdf(probs, almost_one).tolist() == [4]
    assert invert_cdf(torch.full((1, 7), 1 / 7), almost_one).tolist() == [6]


def test_temperature_sharpens_and_flattens():
    uniforms = torch.full((2,), 0.4, dtype=torch.float64)
    hot, cold = (sample_token(PROBS.log(), uniforms, SearchOptions(temperature=t)).tolist()[0] for t in (100.0, 0.01))
    assert (hot, cold) == (1, 1)
    low = torch.full((2,), 0.2, dtype=torch.float64)
    assert sample_token(PROBS.log(), low, SearchOptions(temperature=100.0)).tolist()[0] == 0
    assert sample_token(PROBS.log(), low, SearchOptions(temperature=0.01)).tolist()[0] == 1


def test_uniforms_are_uniform_and_reproducible():
    streams, copies = torch.arange(20_000), torch.zeros(20_000, dtype=torch.long)
    u = stream_uniforms(3, streams, copies, 0)
    assert torch.equal(u, stream_uniforms(3, streams, copies, 0))
    assert u.min() >= 0 and u.max() < 1
    assert torch.histc(u, 10, 0, 1).tolist() == pytest.approx([2000] * 10, abs=200)
    assert len(u.unique()) == 20_000


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"seed": 2**63 + 5}, {"position": 1}, {"copies": torch.ones(500, dtype=torch.long)}],
)
def test_streams_are_independent(change):
    arguments = {
        "seed": 3,
        "streams": torch.arange(500),
        "copies": torch.zeros(500, dtype=torch.long),
        "position": 0,
    }
    a, b = stream_uniforms(**arguments), stream_uniforms(**(arguments | change))
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.15


def test_mix_is_splitmix64():
    """First outputs of the reference generator for seed 1234567."""
    state = torch.tensor([1234567])
    golden = 0x9E3779B97F4A7C15 - 2**64
    outputs = [int(mix(state + i * golden)) % 2**64 for i in range(2)]
    assert outputs == [6457827717110365317, 3203168211198807973]
