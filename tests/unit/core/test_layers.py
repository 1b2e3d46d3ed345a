"""Section 3.1 and 5.4: the order of norm, dropout and residual. Whole layers are tested in `tests/parity`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.core.layers import Sublayer


def halve(x: Tensor) -> Tensor:
    return 0.5 * x


@pytest.mark.parametrize(
    ("norm_first", "expected"),
    [
        (False, lambda x: F.layer_norm(x + halve(x), (8,))),
        (True, lambda x: x + halve(F.layer_norm(x, (8,)))),
    ],
    ids=["post", "pre"],
)
def test_order_of_norm_function_and_residual(norm_first: bool, expected: Callable[[Tensor], Tensor]) -> None:
    x = 3 + torch.randn(2, 3, 8)
    torch.testing.assert_close(Sublayer(nn.LayerNorm(8), 0.0, norm_first)(x, halve), expected(x))


def test_dropout_falls_on_the_function_not_on_the_residual() -> None:
    x = torch.randn(2, 3, 8)
    added = Sublayer(nn.LayerNorm(8), 0.5, norm_first=True)(x, torch.ones_like) - x
    near = torch.isclose(added, torch.tensor(0.0), atol=1e-6) | torch.isclose(added, torch.tensor(2.0))
    assert near.all()
    assert 0 < added.gt(1).sum() < added.numel()
