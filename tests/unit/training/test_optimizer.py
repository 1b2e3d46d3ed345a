"""Adam and Muon, their state as named tensors, gradient norm and clipping."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from headwise.config.model import TransformerConfig
from headwise.config.training import TrainConfig
from headwise.core.extensions.muon import Muon
from headwise.core.optimizer import (
    Optimizer,
    clip_gradients,
    gradient_norm,
    hidden_matrices,
    make_optimizer,
)
from headwise.pytorch.architectures.transformer import build_model

TRAIN = TrainConfig()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def update(model: nn.Module, optimizer: Optimizer, x: Tensor, rate: float = 0.01) -> None:
    model.zero_grad()
    model(x).square().sum().backward()
    optimizer.step(rate)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_adam_with_the_settings_of_the_paper() -> None:
    parameter = nn.ParameterDict({"w": nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))})
    optimizer = make_optimizer(parameter, TRAIN)
    w, m, v = [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]
    for step in (1, 2, 3):
        gradients = [3.0 * step, -0.5 * step]
        parameter["w"].grad = torch.tensor(gradients, dtype=torch.float64)
        optimizer.step(0.1)
        for i, g in enumerate(gradients):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.98 * v[i] + 0.02 * g * g
            w[i] -= 0.1 * (m[i] / (1 - 0.9**step)) / ((v[i] / (1 - 0.98**step)) ** 0.5 + 1e-9)
        assert parameter["w"].tolist() == pytest.approx(w, rel=1e-10)


def test_weight_decay_is_decoupled_and_only_on_matrices() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(model, TrainConfig(weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(0.1)
    for name, parameter in model.named_parameters():
        kept = 1 - 0.1 * 0.5 if name == "0.weight" else 1
        torch.testing.assert_close(parameter.detach(), before[name] * kept)


MUON = replace(TRAIN, optimizer="muon")


def test_muon_orthogonalises_and_adam_updates_the_rest() -> None:
    """Compared with the singular value decomposition; Muon leaves singular values between 0.5 and 1.5."""
    model = nn.Sequential(nn.Linear(8, 6))
    before, bias = model[0].weight.detach().clone(), model[0].bias.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    make_optimizer(model, MUON).step(0.1)
    u, _, vh = torch.linalg.svd(model[0].weight.grad, full_matrices=False)
    moved = (before - model[0].weight.detach()) / (0.1 * 0.2 * 8**0.5)
    inside = u.mT @ moved @ vh.mT
    assert (inside - inside.diagonal().diag()).abs().max() < 0.1
    assert inside.diagonal().min() > 0.5 and inside.diagonal().max() < 1.5
    torch.testing.assert_close((bias - model[0].bias).abs(), torch.full_like(bias, 0.1))  # Adam's first step


def test_hidden_matrices_of_the_transformer() -> None:
    """Six of an encoder layer, ten of a decoder layer; neither embeddings nor the output projection."""
    config = TransformerConfig(vocab_size=9, d_model=8, d_ff=8, n_heads=2, n_encoder_layers=2, n_decoder_layers=3)
    for tied in ("all", "none"):
        model = build_model(replace(config, tied_embeddings=tied))
        hidden = hidden_matrices(model)
        assert len(hidden) == 2 * 6 + 3 * 10
        assert all(9 not in matrix.shape for matrix in hidden)
        assert len(make_optimizer(model, MUON).parts) == 2


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch before 2.9 has no Muon")
@pytest.mark.parametrize("shape", [(8, 6), (6, 8), (7, 7)])
def test_muon_equals_torch_except_for_bfloat16(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten updates; torch's version is forced to use float32."""
    monkeypatch.setattr(Tensor, "bfloat16", lambda tensor: tensor)
    start = torch.randn(shape, dtype=torch.float64)
    ours, theirs = (nn.Parameter(start.clone()) for _ in range(2))
    parts = [Muon([ours], 0.1), torch.optim.Muon([theirs], weight_decay=0.1, adjust_lr_fn="match_rms_adamw")]
    for _ in range(10):
        for matrix, part in zip((ours, theirs), parts, strict=True):
            part.param_groups[0]["lr"] = 0.1
            matrix.grad = matrix.detach() ** 3 - start
            part.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert (ours - start).abs().max() > 0.1


@pytest.mark.parametrize(
    ("train", "kinds"),
    [
        (TRAIN, {"exp_avg", "exp_avg_sq", "step"}),
        (MUON, {"exp_avg", "exp_avg_sq", "step", "momentum_buffer"}),
    ],
    ids=["adam", "muon"],
)
def test_a_restored_optimizer_continues_exactly(train: TrainConfig, kinds: set[str]) -> None:
    model, x = network(), torch.randn(7, 4, dtype=torch.float64)
    optimizer = make_optimizer(model, train)
    for _ in range(3):
        update(model, optimizer, x)
    tensors = {name: value.clone() for name, value in optimizer.tensors(model).items()}
    assert {name.split(".")[0] for name in tensors} == kinds
    twin = deepcopy(model)
    other = make_optimizer(twin, train)
    other.restore(twin, tensors)
    for _ in range(2):
        update(model, optimizer, x)
        update(twin, other, x)
        assert torch.equal(flat(model), flat(twin))


def test_restoring_before_the_first_update_restores_nothing() -> None:
    model = network()
    optimizer = make_optimizer(model, TRAIN)
    assert optimizer.tensors(model) == {}
    optimizer.restore(model, {})
    update(model, optimizer, torch.ones(1, 4, dtype=torch.float64))


def test_the_norm_is_over_all_gradients() -> None:
    model = network()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    torch.testing.assert_close(gradient_norm(model), expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_non_finite_gradient_makes_the_norm_non_finite(value: float) -> None:
    model = network()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    next(model.parameters()).grad.view(-1)[3] = value  # type: ignore[union-attr]
    assert not gradient_norm(model).isfinite()


def test_clipping_scales_only_large_gradients() -> None:
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
