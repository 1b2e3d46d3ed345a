"""Section 3.3: the position-wise feed-forward network, and the gated variant."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]


def relu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """max(0, x); in place without gradients (with them torch would copy, since x is a view of a matrix product)."""
    return F.relu(x, inplace=not torch.is_grad_enabled())


def gelu_tanh(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """The approximation of x Phi(x) that GPT-2 was trained with (arXiv:1606.08415, section 2)."""
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """x sigmoid(1.702 x), the cheaper approximation of the same section."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Activation] = {
    "relu": relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2), or with another activation."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation = relu, bias: bool = True) -> None:
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff, bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Same shape in and out."""
        return self.down_proj(self.activation(self.up_proj(x)))


class GatedFeedForward(nn.Module):
    """FFN(x) = (act(x W_g) * x W_1) W_2: "GEGLU" with GELU, "SwiGLU" with SiLU (arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias)
        self.activation = activation

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Same shape in and out."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
