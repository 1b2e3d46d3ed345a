"""Section 3.5: the formula, growing tables, and the limit of learned positions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.core.positions import LearnedPositions, SinusoidalPositions, sinusoids
from headwise.core.transformer import Transformer
from headwise.errors import UserError


def at(positions: nn.Module, start: int, length: int) -> Tensor:
    """The encodings of positions from `start` on."""
    return positions(torch.arange(start, start + length).unsqueeze(0), start + length)[0]


@pytest.mark.parametrize(
    ("position", "code"),
    [  # d_model 4: sin(pos), cos(pos), sin(pos / 100), cos(pos / 100)
        (0, [0.0, 1.0, 0.0, 1.0]),
        (1, [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004]),
        (2, [0.9092974268, -0.4161468365, 0.0199986667, 0.9998000067]),
        (100, [-0.5063656411, 0.8623188723, 0.8414709848, 0.5403023059]),
    ],
)
def test_sinusoids_by_hand(position: int, code: list[float]) -> None:
    torch.testing.assert_close(sinusoids(position + 1, 4)[position], torch.tensor(code), rtol=1e-6, atol=1e-7)


def test_wavelengths_form_the_papers_progression() -> None:
    """From 2 pi towards 10000 * 2 pi: the angles of position 1 fall by the factor 10000^(2 / d_model)."""
    angles = torch.atan2(sinusoids(2, 8)[1, 0::2], sinusoids(2, 8)[1, 1::2])
    torch.testing.assert_close(angles, torch.tensor([1.0, 0.1, 0.01, 0.001]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("calls", [[(0, 900)], [(3, 2), (0, 5), (509, 5), (600, 300)], [(899, 1)]], ids=str)
def test_positions_beyond_the_table_have_the_same_code(calls: list[tuple[int, int]], dtype: torch.dtype) -> None:
    positions = SinusoidalPositions(d_model=6).to(dtype)
    expected = sinusoids(900, 6).to(dtype)
    for start, length in calls:
        assert torch.equal(at(positions, start, length), expected[start : start + length])


def test_sinusoids_have_nothing_to_save() -> None:
    assert SinusoidalPositions(d_model=6).state_dict() == {}


def test_learned_positions_are_rows_of_their_table() -> None:
    positions = LearnedPositions(d_model=6, max_len=4)
    table = positions.table.weight
    assert torch.equal(at(positions, 0, 4), table)
    assert torch.equal(at(positions, 1, 2), table[1:3])


@pytest.mark.parametrize(("start", "length"), [(0, 5), (4, 1), (3, 2)])
def test_learned_positions_end(start: int, length: int) -> None:
    with pytest.raises(UserError, match=r"5 tokens.*model's 4"):
        at(LearnedPositions(d_model=6, max_len=4), start, length)


def test_learned_positions_end_in_incremental_decoding_too(build_small: Callable[..., Transformer]) -> None:
    model = build_small(positions="learned", max_len=3)
    src, src_mask = torch.tensor([[4, 2]]), torch.ones(1, 2, dtype=torch.bool)
    cache = model.start_cache(model.encode(src, src_mask), src_mask)
    token = torch.tensor([[5]])
    for _ in range(3):
        model.decode(token, cache.memory, cache.src_mask, cache)
    with pytest.raises(UserError, match="4 tokens"):
        model.decode(token, cache.memory, cache.src_mask, cache)
