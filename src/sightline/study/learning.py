"""A short training of a small network on generated batches, with the project's own optimiser and schedule.

The trainer proper learns from files and keeps checkpoints; a unit of the study is too short for either.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sightline.config.settings import TrainConfig
from sightline.training.optimizer import clip_gradients, gradient_norm, make_optimizer
from sightline.training.schedule import learning_rate


def train_network(
    model: nn.Module,
    loss: Callable[[], Tensor],
    steps: int,
    rate: float,
    clip: float = 1.0,
    each: Callable[[int, float, float], None] | None = None,
) -> None:
    """`steps` updates of Adam on `loss()`, which draws its own batch; a tenth of warm-up, then down to zero.

    `clip` is the largest gradient norm, 0 for none. `each(step, loss, gradient norm)` is told of every update.
    An update whose gradient is not finite is left out.
    """
    schedule = TrainConfig(max_steps=steps, warmup_steps=max(1, steps // 10), schedule="linear")
    optimizer = make_optimizer(model, schedule)
    model.train()
    for step in range(1, steps + 1):
        model.zero_grad()
        value = loss()
        value.backward()
        norm = gradient_norm(model)
        if torch.isfinite(norm):
            if clip:
                clip_gradients(model, norm, clip)
            optimizer.step(learning_rate(step, rate, schedule))
        if each:
            each(step, value.item(), norm.item())
    model.eval()
