"""Adam (section 5.3), its update guarded, and its state as named tensors."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.config import TrainConfig


def make_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.Optimizer:
    """Adam(W) over all parameters, in one fused kernel; the rate is set at every step by the trainer."""
    settings = {"lr": 0.0, "betas": tuple(train.betas), "eps": train.eps, "fused": True}
    if train.weight_decay:
        return torch.optim.AdamW(model.parameters(), weight_decay=train.weight_decay, **settings)
    return torch.optim.Adam(model.parameters(), **settings)


def gradient_norm(model: nn.Module) -> Float[Tensor, ""]:
    """Euclidean norm of all gradients together; not finite if any of them is not."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))


def clip_gradients(model: nn.Module, norm: Float[Tensor, ""], largest: float) -> None:
    """Scale all gradients so that their norm, now `norm`, is at most `largest`."""
    if norm > largest:
        torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], largest / (norm + 1e-6))


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The moments as `{"exp_avg.NAME": ..., "exp_avg_sq.NAME": ..., "step.NAME": ...}`."""
    return {
        f"{kind}.{name}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state[parameter].items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    for name, parameter in model.named_parameters():
        kinds = ("exp_avg", "exp_avg_sq", "step")
        state = {kind: tensors[f"{kind}.{name}"] for kind in kinds if f"{kind}.{name}" in tensors}
        if state:
            optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
