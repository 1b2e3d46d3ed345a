"""The fused loss compared with the formulas in torch: values and gradients."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import headwise.pytorch  # noqa: F401 - attaches the compiled library
from headwise.core import loss as module
from headwise.core.loss import sequence_loss

ROWS, D_MODEL, VOCAB = 10, 6, 9


def operands(passes: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(passes, ROWS, D_MODEL, dtype=dtype, requires_grad=True)
    weight = torch.randn(VOCAB, D_MODEL, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(VOCAB, (ROWS,))


def cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """The mean over passes of the sum over rows."""
    logits = (hidden @ weight.T).flatten(0, 1)
    repeated = targets.repeat(len(hidden))
    return F.cross_entropy(logits, repeated, label_smoothing=smoothing, reduction="sum") / len(hidden)


def r_drop_loss(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, alpha: float) -> Tensor:
    first, second = torch.log_softmax(hidden @ weight.T, dim=-1)
    divergence = F.kl_div(first, second, log_target=True, reduction="sum")
    divergence = divergence + F.kl_div(second, first, log_target=True, reduction="sum")
    return cross_entropy(hidden, weight, targets, smoothing) + alpha / 4 * divergence


def assert_same(loss: Tensor, expected: Tensor, hidden: Tensor, weight: Tensor) -> None:
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    wanted = torch.autograd.grad(3 * expected, [hidden, weight])
    torch.testing.assert_close(torch.autograd.grad(3 * loss, [hidden, weight]), wanted, rtol=1e-11, atol=1e-11)


@pytest.fixture(params=[4, 5, 1024], ids="{} rows a chunk".format)
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", request.param)


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_pass_is_label_smoothed_cross_entropy(smoothing: float) -> None:
    hidden, weight, targets = operands(passes=1)
    loss = sequence_loss(hidden, weight, targets, smoothing)
    assert_same(loss.objective, cross_entropy(hidden, weight, targets, smoothing), hidden, weight)
    torch.testing.assert_close(loss.nll, cross_entropy(hidden, weight, targets, 0.0).detach())
    assert not loss.nll.requires_grad


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize("vocab", [9, 16, 40, 101])
def test_softmax_of_library_and_torch(vocab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes logits of 100 and -100."""
    hidden = torch.randn(1, ROWS, D_MODEL, requires_grad=True)
    weight = (20 * torch.randn(vocab, D_MODEL)).requires_grad_()
    targets = torch.randint(vocab, (ROWS,))
    expected = cross_entropy(hidden, weight, targets, 0.1)
    wanted = torch.autograd.grad(expected, [hidden, weight])
    for native in (module.training_library(), None):
        monkeypatch.setattr(module, "training_library", lambda native=native: native)
        loss = sequence_loss(hidden, weight, targets, 0.1)
        torch.testing.assert_close(loss.objective, expected, rtol=1e-5, atol=1e-5)
        assert loss.nll.item() == pytest.approx(cross_entropy(hidden, weight, targets, 0.0).item(), rel=1e-5)
        torch.testing.assert_close(torch.autograd.grad(loss.objective, [hidden, weight]), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("chunk_rows")
@pytest.mark.parametrize("alpha", [1.0, 5.0])
def test_two_passes_are_r_drop(alpha: float) -> None:
    hidden, weight, targets = operands(passes=2)
    loss = sequence_loss(hidden, weight, targets, 0.1, alpha)
    assert_same(loss.objective, r_drop_loss(hidden, weight, targets, 0.1, alpha), hidden, weight)
    torch.testing.assert_close(loss.nll, cross_entropy(hidden, weight, targets, 0.0).detach())


def test_equal_passes_have_no_divergence() -> None:
    hidden, weight, targets = operands(passes=1)
    plain = sequence_loss(hidden, weight, targets, 0.1).objective
    torch.testing.assert_close(sequence_loss(hidden.repeat(2, 1, 1), weight, targets, 0.1, 5.0).objective, plain)


@pytest.mark.parametrize("passes", [1, 2])
def test_extreme_logits_stay_finite(passes: int) -> None:
    hidden, weight, targets = operands(passes, torch.float32)
    large = (hidden * 1e5).detach().requires_grad_()
    loss = sequence_loss(large, weight, targets, 0.1, r_drop=0.0 if passes == 1 else 5.0)
    gradients = torch.autograd.grad(loss.objective, [large, weight])
    assert all(bool(value.isfinite().all()) for value in (loss.objective, loss.nll, *gradients))
    if passes == 1:
        torch.testing.assert_close(loss.objective, cross_entropy(large, weight, targets, 0.1))


def test_without_gradients_the_value_is_the_same() -> None:
    hidden, weight, targets = operands(passes=1)
    with torch.inference_mode():
        value = sequence_loss(hidden.detach(), weight.detach(), targets, 0.1).objective
    torch.testing.assert_close(value, sequence_loss(hidden, weight, targets, 0.1).objective.detach())


def test_in_bfloat16_the_loss_is_summed_in_float32() -> None:
    hidden, weight, targets = operands(passes=1, dtype=torch.float32)
    expected = cross_entropy(hidden, weight, targets, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = sequence_loss(hidden, weight, targets, 0.1).objective
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    assert loss.item() != expected.item()
    wanted = torch.autograd.grad(expected, [hidden, weight])
    for gradient, exact in zip(torch.autograd.grad(loss, [hidden, weight]), wanted, strict=True):
        assert gradient.dtype == torch.float32
        assert (gradient - exact).norm() < 0.02 * exact.norm()


def test_bfloat16_logits() -> None:
    hidden, weight, targets = (t.bfloat16() if t.is_floating_point() else t for t in operands(passes=1))
    expected = F.cross_entropy((hidden[0] @ weight.T).float(), targets, reduction="sum")
    assert sequence_loss(hidden, weight, targets, 0.0).nll.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.fixture
def autocast() -> Iterator[None]:
    """Products in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        yield


@pytest.mark.parametrize("vocab", [20, 101])
def test_the_softmax_of_the_loss_is_that_of_float32_rounded(
    vocab: int, autocast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Library and torch differ by less than one unit of bfloat16."""
    hidden, weight = torch.randn(1, 50, 16, requires_grad=True), torch.randn(vocab, 16, requires_grad=True)
    targets = torch.randint(vocab, (50,))
    found = []
    for native in (module.training_library(), None):
        monkeypatch.setattr(module, "training_library", lambda native=native: native)
        loss = sequence_loss(hidden, weight, targets, 0.1)
        found.append([loss.objective, loss.nll, *torch.autograd.grad(loss.objective, [hidden, weight])])
    for ours, torchs in zip(*found, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-2, atol=2e-2)
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=1e-6, atol=1e-5)


def test_out_of_memory_for_a_row_of_logits(monkeypatch: pytest.MonkeyPatch, autocast: None) -> None:
    class Failing:
        headwise_softmax = staticmethod(lambda *_: -1)

    monkeypatch.setattr(module, "training_library", Failing)
    with pytest.raises(MemoryError):
        sequence_loss(torch.randn(1, 3, 8), torch.randn(9, 8), torch.tensor([1, 2, 3]), 0.1)
