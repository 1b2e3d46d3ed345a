"""Section 5.3: the learning rate as a function of the step."""

import math

from headwise.config.training import TrainConfig


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
