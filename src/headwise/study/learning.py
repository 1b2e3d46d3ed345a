"""Short training of a small network on generated batches, with the project's optimizer and schedule.

The project's trainer needs files and writes checkpoints, for which a unit of the study is too short.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.config.training import TrainConfig
from headwise.training.optimizer import clip_gradients, gradient_norm, make_optimizer
from headwise.training.schedule import learning_rate


def train_network(
    model: nn.Module,
    loss: Callable[[], Tensor],
    steps: int,
    rate: float,
    clip: float = 1.0,
    each: Callable[[int, float, float], None] | None = None,
) -> None:
    """`steps` updates of Adam on `loss()`, which samples a batch; a tenth is warm-up, then the rate falls to zero.

    `clip` is the largest gradient norm, 0 for none. `each(step, loss, gradient norm)` is called for every update.
    Updates with a gradient that is not finite are skipped.
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
