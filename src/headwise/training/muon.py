"""Muon (https://kellerjordan.github.io/posts/muon): the momentum of a matrix, orthogonalised, is its update.

torch has one too (`torch.optim.Muon`, from 2.9 on), which is what this does, number for number where both compute in
the same precision (`tests/unit/training/test_optimizer.py`). It orthogonalises in bfloat16 wherever it runs, and on a
processor without instructions for that an update of recipe `tiny` took it twenty times as long as in float32.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic that brings singular values near 1, steepest at 0
ITERATIONS = 5
AS_ADAM = 0.2  # root mean square of AdamW's updates (arXiv:2502.16982, section 2.2)


class Muon(torch.optim.Optimizer):
    """Matrices `W` of `d_out` rows and `d_in` columns: `W -= rate * (0.2 * sqrt(max(d_out, d_in)) * O + decay * W)`.

    `O` is the orthogonalised Nesterov momentum of the gradients; its factor makes updates as large as AdamW's, so that
    both take one learning rate.
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
    """The matrix with singular values between about 0.5 and 1.5: five steps of Newton and Schulz's iteration."""
    a, b, c = COEFFICIENTS
    wide = matrix if len(matrix) <= matrix.size(1) else matrix.mT  # the product with itself is the smaller one
    x = wide.bfloat16() if matrix.is_cuda else wide
    x = x / x.norm().clamp(min=1e-7)  # all singular values are at most 1 then
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return (x if wide is matrix else x.mT).to(matrix.dtype)
