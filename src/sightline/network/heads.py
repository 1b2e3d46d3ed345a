"""From the last hidden states to logits.

The paper's head is `LanguageHead`. Heads of whatever writes no text are in `other_heads.py`, pooling for our own
classifiers and forecasters in `pooled.py`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

Scores = Callable[[Tensor], Tensor]  # from hidden states (*any, d_model) to scores (*any, n)


class LanguageHead(nn.Module):
    """W h (+ b), a score for each piece of the vocabulary (section 3.4): the paper's output projection."""

    def __init__(self, output: nn.Linear) -> None:
        super().__init__()
        self.output = output

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(hidden)

    def rows(self, ids: Int[Tensor, " n"]) -> Scores:
        """The scores of some pieces only, for less than those of all."""
        weight, bias = self.output.weight[ids], None if self.output.bias is None else self.output.bias[ids]
        return lambda hidden: F.linear(hidden, weight, bias)


class ScaledLanguageHead(LanguageHead):
    """W (scale * h): T5 scales by d_model^-1/2 where head and embeddings are one matrix."""

    def __init__(self, output: nn.Linear, scale: float) -> None:
        super().__init__(output)
        self.scale = scale

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(hidden * self.scale)

    def rows(self, ids: Int[Tensor, " n"]) -> Scores:
        """As of `LanguageHead`."""
        scores = super().rows(ids)
        return lambda hidden: scores(hidden * self.scale)


class CappedLanguageHead(LanguageHead):
    """cap * tanh(logits / cap): no score beyond the cap (Gemma 2, arXiv:2408.00118, section 2.2)."""

    def __init__(self, output: nn.Linear, cap: float) -> None:
        super().__init__(output)
        self.cap = cap

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.cap * torch.tanh(super().forward(hidden) / self.cap)

    def rows(self, ids: Int[Tensor, " n"]) -> Scores:
        """As of `LanguageHead`."""
        scores = super().rows(ids)
        return lambda hidden: self.cap * torch.tanh(scores(hidden) / self.cap)
