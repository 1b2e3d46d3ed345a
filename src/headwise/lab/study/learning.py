"""Short training of a small network on generated batches, with the project's optimizer and schedule.

The project's trainer needs files and writes checkpoints, for which a unit of the study is too short.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.config.training import TrainConfig
from headwise.core.optimizer import clip_gradients, gradient_norm, learning_rate, make_optimizer

CHECK_EVERY = 50  # updates between two looks at whether the training is done


@dataclass(frozen=True)
class Training:
    """What happened in a training."""

    updates: int  # done, diverged ones included
    diverged: int  # updates with a gradient that was not finite, which changed nothing
    finished: bool  # whether `until` was met; True without it


def train_network(
    model: nn.Module,
    loss: Callable[[], Tensor],
    steps: int,
    rate: float,
    clip: float = 1.0,
    each: Callable[[int, float, float], None] | None = None,
    until: Callable[[], bool] | None = None,
) -> Training:
    """`steps` updates of Adam on `loss()`, which samples a batch; a tenth is warm-up, then the rate falls to zero.

    `clip` is the largest gradient norm, 0 for none. `each(step, loss, gradient norm)` is called for every update.
    With `until` the rate stays level, and training ends as soon as `until()` is true, tried now and then.
    """
    shape = "linear" if until is None else "constant"
    schedule = TrainConfig(max_steps=steps, warmup_steps=max(1, steps // 10), schedule=shape)
    optimizer = make_optimizer(model, schedule)
    diverged = step = 0
    finished = until is None
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
        else:
            diverged += 1
        if each:
            each(step, value.item(), norm.item())
        if until is not None and step % CHECK_EVERY == 0 and until():
            finished = True
            break
    model.eval()
    return Training(step, diverged, finished)
