"""The Muon optimizer (https://kellerjordan.github.io/posts/muon): updates are orthogonalised momenta.

Results equal those of `torch.optim.Muon` (torch 2.9) in the same precision (`tests/unit/training/test_optimizer.py`).
torch always orthogonalises in bfloat16. On a processor without bfloat16 instructions, an update of recipe `tiny` then
took twenty times as long as in float32.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic polynomial of the Newton-Schulz iteration
ITERATIONS = 5
AS_ADAM = 0.2  # root mean square of AdamW's updates (arXiv:2502.16982, section 2.2)


class Muon(torch.optim.Optimizer):
    """Matrices `W` of `d_out` rows and `d_in` columns: `W -= rate * (0.2 * sqrt(max(d_out, d_in)) * O + decay * W)`.

    `O` is the orthogonalised Nesterov momentum of the gradients; its factor makes updates as large as AdamW's, so
    that both use the same learning rate.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], weight_decay: float) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    momentum = self.state[matrix].setdefault("momentum_buffer", torch.zeros_like(matrix))
                    momentum.lerp_(matrix.grad, 1 - MOMENTUM)
                    direction = orthogonalised(matrix.grad.lerp(momentum, MOMENTUM))
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(direction, alpha=-group["lr"] * AS_ADAM * max(matrix.shape) ** 0.5)


def orthogonalised(matrix: Float[Tensor, "d_out d_in"]) -> Float[Tensor, "d_out d_in"]:
    """The matrix with singular values moved to about 0.5 to 1.5, by five steps of the Newton-Schulz iteration."""
    a, b, c = COEFFICIENTS
    wide = matrix if len(matrix) <= matrix.size(1) else matrix.mT  # for the smaller Gram matrix
    x = wide.bfloat16() if matrix.is_cuda else wide
    x = x / x.norm().clamp(min=1e-7)  # so that all singular values are at most 1
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x if wide is matrix else x.mT).to(matrix.dtype)
