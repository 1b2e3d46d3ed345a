"""A loop as users of `transformers` write it, and the steps of our trainer, over the same batches."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

import torch

from sightline.checkpoint.write import file_tensors
from sightline.config import TrainConfig
from sightline.training.optimizer import clip_gradients, gradient_norm, make_optimizer
from sightline.training.schedule import learning_rate


def batches_of(job: Any) -> Iterator[Any]:
    """As many as the job takes steps."""
    with closing(job.stream(None, pin=False)) as stream:
        yield from islice(stream, job.config.train.max_steps)


def in_file(network: Any, job: Any, gradients: bool = False) -> dict[str, torch.Tensor]:
    """Parameters, or their gradients, by the names and in the shapes that transformers has; zeros of what has none."""
    own = {name: p.grad if gradients else p.detach() for name, p in network.named_parameters()}
    zeros = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    return file_tensors(
        {name: zeros[name] if value is None else value for name, value in own.items()}, job.model.config
    )


def adamw_of(theirs: Any, train: TrainConfig) -> torch.optim.AdamW:
    """Decays what has two axes or more."""
    parts = [p for p in theirs.parameters() if p.dim() > 1], [p for p in theirs.parameters() if p.dim() == 1]
    groups = [{"params": p, "weight_decay": w} for p, w in zip(parts, (train.weight_decay, 0.0), strict=True)]
    return torch.optim.AdamW(groups, lr=train.learning_rate, betas=train.betas, eps=train.eps)


def curves(
    theirs: Any,
    own: Any,
    train: TrainConfig,
    objective: Any,
    batches: Iterable[Any],
    loss_of: Callable[[Any], Any],
    adamw: torch.optim.AdamW | None = None,
) -> tuple[list[float], list[float]]:
    """The losses of both before each update, theirs first; both networks are trained."""
    adamw, optimizer = adamw or adamw_of(theirs, train), make_optimizer(own, train)
    found: tuple[list[float], list[float]] = [], []
    for step, batch in enumerate(batches, start=1):
        loss = loss_of(batch)
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), train.clip_norm)
        rate = learning_rate(step, train.learning_rate, train)
        for group in adamw.param_groups:
            group["lr"] = rate
        adamw.step()
        own.zero_grad()
        ours = objective(batch).objective / batch.n_targets
        ours.backward()
        clip_gradients(own, gradient_norm(own), train.clip_norm)
        optimizer.step(rate)
        found[0].append(loss.item())
        found[1].append(ours.item())
    return found
