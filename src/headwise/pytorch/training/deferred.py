"""Updates for which the process does not wait for the GPU.

The device decides whether loss and gradient are finite, and the process reads the sums of an update while the next one
is computed, so that the device always has work. Tests run the same code on a CPU, where nothing is asynchronous.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.config.training import TrainConfig
from headwise.core.optimizer import Optimizer
from headwise.device import DEFER, is_on


def can_defer(device: torch.device, train: TrainConfig) -> bool:
    """Whether updates are decided on the device: switched on, on CUDA, with Adam and without a moving average."""
    return device.type == "cuda" and is_on(DEFER) and train.optimizer == "adam" and not train.ema


def step_if_finite(
    optimizer: Optimizer, objective: Float[Tensor, ""], norm: Float[Tensor, ""], rate: float, clip_norm: float
) -> None:
    """`optimizer.step` of Adam, with gradients clipped to `clip_norm` (0: not), if objective and `norm` are finite.

    torch's fused kernel divides gradients by `grad_scale`, and changes nothing where `found_inf` is 1; both are what
    its GradScaler sets, https://docs.pytorch.org/docs/stable/notes/amp_examples.html.
    """
    found = ~(objective.isfinite() & norm.isfinite())
    for part in optimizer.parts:
        part.found_inf = found.float()  # pyright: ignore[reportAttributeAccessIssue]
        part.grad_scale = (norm / clip_norm).clamp(min=1).float() if clip_norm else None  # pyright: ignore
    optimizer.step(rate)


class UpdateSums:
    """Sums of an update, perhaps still on their way from the device.

    Args:
        sums: float64, on the device.
        names: of all sums but the first, the objective, and the last, the norm of the gradients.
        step: number of the update.
        n_targets: of the update; of this process until all are summed.
    """

    def __init__(self, sums: Float[Tensor, " sums"], names: Sequence[str], step: int, n_targets: int) -> None:
        self.names, self.step, self.n_targets = names, step, n_targets
        self._sums = sums.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if sums.is_cuda else None
        if self._copied:
            self._copied.record(torch.cuda.current_stream(sums.device))

    def read(self) -> list[float]:
        """The sums, once they are computed."""
        if self._copied:
            self._copied.synchronize()
        return self._sums.tolist()
