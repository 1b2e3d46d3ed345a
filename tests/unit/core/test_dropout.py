"""Section 5.4: our dropout has the statistical properties of the standard one."""

from collections.abc import Callable

import pytest
import torch

import headwise.core
import headwise.pytorch  # attaches the compiled library
from headwise.core import dropout as module
from headwise.core.dropout import Dropout, _drop
from headwise.runtime.native import library


@pytest.fixture(autouse=True, params=["library", "torch"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the compiled library."""
    if request.param == "torch":
        monkeypatch.setattr("headwise.core.dropout.training_library", lambda: None)
    elif library.library() is None:
        pytest.skip("there is no compiled library here")


def test_the_library_is_attached_by_the_package_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert headwise.core.training_library() is library.training_library()
    monkeypatch.setattr(headwise.core, "_attached", [])
    assert headwise.core.training_library() is None


ELEMENTS = 200_000  # the dropped share then has a standard deviation of about 0.001


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_share_dropped(p: float) -> None:
    dropped = Dropout(p)(torch.ones(ELEMENTS)) == 0
    assert dropped.double().mean().item() == pytest.approx(p, abs=0.005)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 16, 64])
def test_elements_are_dropped_independently(lag: int) -> None:
    """Four or sixteen elements share one random number and must still be independent."""
    dropped = Dropout(0.3)(torch.ones(ELEMENTS)) == 0
    both = (dropped[lag:] & dropped[:-lag]).double().mean().item()
    assert both == pytest.approx(0.3**2, abs=0.005)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_mean_is_kept(p: float) -> None:
    assert Dropout(p)(torch.ones(ELEMENTS)).double().mean().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 3, 4), (0, 4)], ids=str)
def test_kept_elements_are_scaled_in_any_shape(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    y = Dropout(0.25)(x)
    assert y.shape == x.shape
    torch.testing.assert_close(y, torch.where(y == 0, 0.0, x / 0.75))


@pytest.mark.parametrize("n", [1, 5, 8, 16, 37])
def test_kept_float32_elements_are_scaled_at_any_length(n: int) -> None:
    x = torch.rand(n) + 1
    y = Dropout(0.25)(x)
    torch.testing.assert_close(y, torch.where(y == 0, 0.0, x / 0.75))


def test_float32_residual_is_added_and_the_gradient_drops_the_same() -> None:
    x, residual = (torch.randn(33, 7, requires_grad=True) for _ in range(2))
    y = Dropout(0.4)(x, residual)
    added = (y - residual).detach()
    kept = added.abs() > 1e-6
    assert 0.4 < kept.float().mean() < 0.8
    torch.testing.assert_close(added, torch.where(kept, x.detach() / 0.6, 0.0), rtol=1e-4, atol=1e-5)
    upstream = torch.randn_like(y)
    gradients = torch.autograd.grad(y, (x, residual), upstream)
    torch.testing.assert_close(gradients[0], torch.where(kept, upstream / 0.6, 0.0), rtol=1e-4, atol=1e-5)
    assert torch.equal(gradients[1], upstream)


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


def test_residual_is_added_untouched() -> None:
    x, residual = (torch.randn(50, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.manual_seed(1)
    alone = Dropout(0.3)(x)
    torch.manual_seed(1)
    together = Dropout(0.3)(x, residual)
    torch.testing.assert_close(together, residual + alone)
    upstream = torch.randn_like(together)
    expected = (*torch.autograd.grad(alone, x, upstream), upstream)
    torch.testing.assert_close(torch.autograd.grad(together, (x, residual), upstream), expected)


@pytest.mark.parametrize("with_residual", [False, True])
def test_gradient_is_that_of_the_function(with_residual: bool) -> None:
    x, residual = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def dropped(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return Dropout(0.4)(x, residual if with_residual else None) * residual

    assert torch.autograd.gradcheck(dropped, (x, residual))


def test_a_sublayer_in_bfloat16_on_a_residual_in_float32() -> None:
    """As under autocast: the sum is float32, and each gradient has the dtype of its input."""
    x, residual = torch.randn(50, 3).bfloat16().requires_grad_(), torch.randn(50, 3, requires_grad=True)
    y = Dropout(0.25)(x, residual)
    assert y.dtype == torch.float32
    added = (y - residual).detach()
    torch.testing.assert_close(added, torch.where(added.abs() < 1e-6, 0.0, x.float().detach() / 0.75))
    gradients = torch.autograd.grad(y.sum(), (x, residual))
    assert [gradient.dtype for gradient in gradients] == [torch.bfloat16, torch.float32]


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9])
def test_probabilities_beyond_the_finest_step(p: float) -> None:
    """The mask has 65536 levels; smaller probabilities are rounded to the nearest one, never to 0 or 1."""
    share = (Dropout(p)(torch.ones(1 << 21)) == 0).double().mean().item()
    assert 0 < share < 1
    assert share == pytest.approx(p, abs=1e-4)


@pytest.mark.parametrize("dropout", [Dropout(0.3).eval(), Dropout(0.0)], ids=["eval", "p=0"])
def test_identity_leaves_the_residual(dropout: Dropout) -> None:
    x, residual = torch.randn(4), torch.randn(4)
    assert torch.equal(dropout(x, residual), residual + x)


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


@pytest.fixture
def drop() -> Callable[..., torch.Tensor]:
    if module.training_library() is None:
        pytest.skip("torch does without")
    return _drop


def test_numbers_are_rounded_as_torch_rounds_them(drop: Callable[..., torch.Tensor]) -> None:
    """Ties and their neighbours, the largest and smallest numbers, infinities and NaN."""
    upper = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32)[:, None] << 16
    lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    x = (upper | lower).flatten().view(torch.float32)
    rounded = drop(x, None, 1, 0, 1.0, torch.bfloat16)
    none = x.isnan()
    assert torch.equal(rounded[~none].view(torch.int16), x.bfloat16()[~none].view(torch.int16))
    assert bool(rounded[none].isnan().all()) and int(none.sum()) == 6 * 254 + 10
    back = drop(rounded, None, 1, 0, 1.0, torch.float32)
    assert torch.equal(back[~none], rounded[~none].float())


@pytest.mark.parametrize("n", [1, 8, 15, 16, 40, 20_003])
def test_dropout_samples_the_same(n: int, drop: Callable[..., torch.Tensor]) -> None:
    x, residual = torch.randn(n).bfloat16(), torch.randn(n)
    wanted = drop(x.float(), residual, 3, 20_000, 1.5, torch.float32)
    assert torch.equal(drop(x, residual, 3, 20_000, 1.5, torch.float32), wanted)
    narrow = drop(x.float(), None, 3, 20_000, 1.5, torch.float32).bfloat16()
    assert torch.equal(drop(x, None, 3, 20_000, 1.5, torch.bfloat16), narrow)
