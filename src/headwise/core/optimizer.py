"""Adam (section 5.3) and Muon, gradient clipping, and the optimizer state as named tensors."""

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config.training import TrainConfig
from headwise.core.extensions.muon import Muon
from headwise.errors import UserError

# Section 5.3: the learning rate as a function of the step.


def peak_learning_rate(train: TrainConfig, d_model: int) -> float:
    """`train.learning_rate`, or if that is 0 the paper's peak d_model^-0.5 * warmup_steps^-0.5."""
    return train.learning_rate or (d_model * train.warmup_steps) ** -0.5


def learning_rate(step: int, peak: float, train: TrainConfig) -> float:
    """Learning rate of update `step`, counted from 1: linear warm-up, then the schedule.

    "inverse_sqrt" with the paper's peak is equation 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    >>> paper = TrainConfig()
    >>> 512**-0.5 * 4000**-0.5 == learning_rate(4000, peak_learning_rate(paper, d_model=512), paper)
    True
    """
    if step < train.warmup_steps:
        return peak * step / train.warmup_steps
    if train.schedule == "inverse_sqrt":
        return peak * math.sqrt(train.warmup_steps / step)
    left = max(0.0, (train.max_steps - step) / max(1, train.max_steps - train.warmup_steps))
    if train.schedule == "linear":
        return peak * left
    if train.schedule == "cosine":
        return peak * 0.5 * (1 - math.cos(math.pi * left))
    return peak


def is_nearly_constant(first: int, last: int, train: TrainConfig) -> bool:
    """Whether the learning rates of the updates `first` and `last` differ by less than a fifth of the higher one.

    >>> is_nearly_constant(94_000, 100_000, TrainConfig(schedule="inverse_sqrt"))
    True
    >>> is_nearly_constant(94_000, 100_000, TrainConfig(schedule="linear"))
    False
    """
    low, high = sorted(learning_rate(step, 1.0, train) for step in (first, last))
    return low > 0.8 * high


STATE = ("exp_avg", "exp_avg_sq", "step", "momentum_buffer")  # the state of a parameter in Adam and Muon


class Optimizer:
    """Combines torch optimizers of different parameters; the trainer sets the learning rate."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    def step(self, rate: float) -> None:
        """Update every parameter that has a gradient, at this learning rate."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """The state as `{"exp_avg.NAME": ..., "exp_avg_sq.NAME": ..., "step.NAME": ...}`; Muon: "momentum_buffer"."""
        return {f"{kind}.{name}": value for name, _, state in self._states(model) for kind, value in state.items()}

    def restore(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        for name, parameter, state in self._states(model):
            state.update({k: tensors[f"{k}.{name}"].to(parameter.device) for k in STATE if f"{k}.{name}" in tensors})

    def _states(self, model: nn.Module) -> Iterator[tuple[str, nn.Parameter, dict[str, Tensor]]]:
        """Name, parameter and optimizer state."""
        parts = {parameter: part for part in self.parts for group in part.param_groups for parameter in group["params"]}
        for name, parameter in model.named_parameters():
            yield name, parameter, parts[parameter].state[parameter]


def make_optimizer(model: nn.Module, train: TrainConfig) -> Optimizer:
    """Adam(W) over all parameters, in one fused kernel.

    With `train.optimizer` = "muon", Muon for the hidden matrices.
    """
    if train.optimizer == "adam":
        return Optimizer(_adam(model.parameters(), train))
    hidden = hidden_matrices(model)
    if not hidden:
        raise UserError("train.optimizer = muon: this network has no linear layers between its layers; use adam")
    chosen = set(hidden)
    return Optimizer(Muon(hidden, train.weight_decay), _adam([p for p in model.parameters() if p not in chosen], train))


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Weights of all linear layers except the output projection: those that Muon is meant for."""
    last = getattr(model, "output", None)
    layers = (m for m in model.modules() if isinstance(m, nn.Linear) and m is not last)
    return [layer.get_parameter("weight") for layer in layers]


def _adam(parameters: Iterable[nn.Parameter], train: TrainConfig) -> torch.optim.Optimizer:
    """AdamW (arXiv:1711.05101), or Adam if weight decay is 0; biases and norms are never decayed."""
    parameters = list(parameters)
    matrices, vectors = ([p for p in parameters if (p.dim() > 1) == is_matrix] for is_matrix in (True, False))
    groups = [{"params": matrices, "weight_decay": train.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=0.0, betas=train.betas, eps=train.eps, fused=True)


def gradient_norm(model: nn.Module) -> Float[Tensor, ""]:
    """Euclidean norm of all gradients; not finite if any of them is not."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))


def clip_gradients(model: nn.Module, norm: Float[Tensor, ""], largest: float) -> None:
    """Scale all gradients so that their norm, which is `norm`, becomes at most `largest`."""
    if norm > largest:
        torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], largest / float(norm + 1e-6))
