"""Section 5.4: dropout of our own making keeps every promise of the textbook's."""

import pytest
import torch

from sightline.model.dropout import Dropout

ELEMENTS = 200_000  # the share dropped then has a standard deviation of about 0.001


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_share_dropped(p: float) -> None:
    dropped = Dropout(p)(torch.ones(ELEMENTS)) == 0
    assert dropped.double().mean().item() == pytest.approx(p, abs=0.005)


@pytest.mark.parametrize("lag", [1, 2, 3, 4])
def test_elements_are_dropped_independently(lag: int) -> None:
    """Four elements share one random draw; none of them may know of the others."""
    dropped = Dropout(0.3)(torch.ones(ELEMENTS)) == 0
    both = (dropped[lag:] & dropped[:-lag]).double().mean().item()
    assert both == pytest.approx(0.3**2, abs=0.005)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_mean_is_kept(p: float) -> None:
    assert Dropout(p)(torch.ones(ELEMENTS)).double().mean().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 3, 4), (0, 4)], ids=str)
def test_what_is_kept_is_scaled_in_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    y = Dropout(0.25)(x)
    assert y.shape == x.shape
    torch.testing.assert_close(y, torch.where(y == 0, 0.0, x / 0.75))


def test_transposed_input() -> None:
    x = torch.arange(1.0, 13.0).view(3, 4).T
    y = Dropout(0.5)(x)
    assert torch.equal(y, torch.where(y == 0, 0.0, 2 * x))


def test_gradient_passes_where_the_value_did() -> None:
    x = (torch.rand(50, 3) + 1).requires_grad_()
    y = Dropout(0.3)(x)
    upstream = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    scale = (y / x).max()
    torch.testing.assert_close(gradient, upstream * scale * (y != 0))
    assert 0 < (y != 0).sum() < y.numel()


@pytest.mark.parametrize("dropout", [Dropout(0.3).eval(), Dropout(0.0)], ids=["eval", "p=0"])
def test_identity(dropout: Dropout) -> None:
    x = torch.randn(4)
    assert dropout(x) is x


def test_seed_decides() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(100))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
