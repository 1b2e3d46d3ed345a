"""A loop as users of `transformers` write it, and the steps of our trainer, over the same batches.

Trajectories are compared in float64. Training is chaotic: it amplifies differences in rounding, which depend on the
processor's instructions. In float32 they start at 6e-8, and no bound holds on every processor; in float64 at 1e-16.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from itertools import islice
from typing import Any

import pytest
import torch

from headwise.config.training import TrainConfig
from headwise.core.optimizer import clip_gradients, gradient_norm, learning_rate, make_optimizer
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.pytorch.data.stream import ALL_BATCHES

SAME_LOSS = 1e-9
"""Largest difference between two losses in float64. Measured: 4e-13 at most; a real difference, such as another epsilon
in Adam (1e-9 for 1e-8), shows at 1e-7 or more."""
SAME_WEIGHT = 1e-7
"""Largest difference between two parameters after fifty updates in float64. A gradient that is zero but for rounding
(1e-17) moves a parameter by at most 1e-17 / epsilon of the rate, 1e-8; in float32 it moves it by the rate itself."""
PARTLY_FLOAT32 = 1e-4
"""Both bounds where transformers computes a part in float32 whatever the network's precision: the softmax of T5, the
norms of LLaMA, the rates of ModernBERT's rotations. A rounding of 6e-8 may grow a thousandfold; measured: 3e-7 in the
losses."""


def batches_of(job: Any) -> Iterator[Any]:
    """As many as the job takes steps."""
    with closing(job.stream(None, ALL_BATCHES)) as stream:
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


def in_double(batch: Any) -> Any:
    """A batch with its tensors of real numbers in float64."""
    real = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return replace(batch, **{k: v.double() for k, v in real.items() if torch.is_tensor(v) and v.is_floating_point()})


def positions_in_double(theirs: Any) -> None:
    """XLNet's positions, which transformers computes in float32 whatever the network, in the network's precision."""
    transformer = theirs.transformer
    encode = transformer.relative_positional_encoding
    transformer.relative_positional_encoding = lambda *args, **given: encode(*args, **given).to(theirs.dtype)


def stay_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `Tensor.float`, with which transformers computes parts in float32, leave float64 as it is."""
    plain = torch.Tensor.float
    monkeypatch.setattr(torch.Tensor, "float", lambda x, **more: x if x.dtype == torch.float64 else plain(x, **more))


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
    theirs.double(), own.double()
    adamw, optimizer = adamw or adamw_of(theirs, train), make_optimizer(own, train)
    found: tuple[list[float], list[float]] = [], []
    for step, batch in enumerate(map(in_double, batches), start=1):
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
        assert loss.dtype == ours.dtype == torch.float64, (loss.dtype, ours.dtype)
    return found
