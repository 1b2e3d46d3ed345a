"""Variants of layer normalisation (section 3.1 uses nn.LayerNorm)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """w * x / sqrt(mean(x^2) + eps): layer normalisation without mean and bias (arXiv:1910.07467)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*any width"]) -> Float[Tensor, "*any width"]:
        """Same shape in and out."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class ShiftedRMSNorm(RMSNorm):
    """(1 + w) * x / sqrt(mean(x^2) + eps), as in Gemma, so that weight decay pulls towards the identity.

    Computed in float32: in half precision, adding 1 would lose the low bits of w.
    """

    def forward(self, x: Float[Tensor, "*any width"]) -> Float[Tensor, "*any width"]:
        """Same shape in and out."""
        return F.rms_norm(x.float(), self.weight.shape, 1.0 + self.weight.float(), self.eps).to(x.dtype)
