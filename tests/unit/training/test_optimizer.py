"""Adam by its formula, its state as named tensors, gradients measured and clipped."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from sightline.config import TrainConfig
from sightline.training.optimizer import (
    clip_gradients,
    gradient_norm,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
)

TRAIN = TrainConfig()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def update(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, rate: float = 0.01) -> None:
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.param_groups[0]["lr"] = rate
    optimizer.step()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_updates_are_adam_with_the_settings_of_the_paper() -> None:
    parameter = nn.ParameterDict({"w": nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))})
    optimizer = make_optimizer(parameter, TRAIN)
    w, m, v = [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]
    for step in (1, 2, 3):
        gradients = [3.0 * step, -0.5 * step]
        parameter["w"].grad = torch.tensor(gradients, dtype=torch.float64)
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        for i, g in enumerate(gradients):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.98 * v[i] + 0.02 * g * g
            w[i] -= 0.1 * (m[i] / (1 - 0.9**step)) / ((v[i] / (1 - 0.98**step)) ** 0.5 + 1e-9)
        assert parameter["w"].tolist() == pytest.approx(w, rel=1e-10)


def test_weight_decay_is_decoupled() -> None:
    model = nn.Linear(2, 2)
    before = flat(model)
    optimizer = make_optimizer(model, TrainConfig(weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    torch.testing.assert_close(flat(model), before * (1 - 0.1 * 0.5))


def test_a_restored_optimizer_goes_on_exactly() -> None:
    model, x = network(), torch.randn(7, 4, dtype=torch.float64)
    optimizer = make_optimizer(model, TRAIN)
    for _ in range(3):
        update(model, optimizer, x)
    tensors = {name: value.clone() for name, value in optimizer_tensors(optimizer, model).items()}
    assert {name.split(".")[0] for name in tensors} == {"exp_avg", "exp_avg_sq", "step"}
    twin = deepcopy(model)
    other = make_optimizer(twin, TRAIN)
    restore_optimizer(other, twin, tensors)
    for _ in range(2):
        update(model, optimizer, x)
        update(twin, other, x)
        assert torch.equal(flat(model), flat(twin))


def test_restoring_before_the_first_update_restores_nothing() -> None:
    model = network()
    optimizer = make_optimizer(model, TRAIN)
    assert optimizer_tensors(optimizer, model) == {}
    restore_optimizer(optimizer, model, {})
    update(model, optimizer, torch.ones(1, 4, dtype=torch.float64))


def test_the_norm_is_that_of_all_gradients_together() -> None:
    model = network()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(gradient_norm(model), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_bad_number_shows_in_the_norm(value: float) -> None:
    model = network()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    next(model.parameters()).grad.view(-1)[3] = value  # type: ignore[union-attr]
    assert not gradient_norm(model).isfinite()


def test_clipping_scales_what_is_too_long_and_nothing_else() -> None:
    model = network()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    norm = gradient_norm(model)
    first = next(model.parameters()).grad
    assert first is not None
    direction = first / norm
    clip_gradients(model, norm, 2 * norm.item())
    torch.testing.assert_close(gradient_norm(model), norm)
    clip_gradients(model, norm, 0.5)
    assert gradient_norm(model).item() == pytest.approx(0.5, rel=1e-5)
    torch.testing.assert_close(first / 0.5, direction, rtol=1e-5, atol=0)
