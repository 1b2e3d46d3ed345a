"""From the last hidden states to logits.

The paper's head is `LanguageHead`. Heads of whatever writes no text are in `other_heads.py`, pooling for our own
classifiers and forecasters in `pooled.py`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LanguageHead(nn.Module):
    """W h (+ b), a score for each piece of the vocabulary (section 3.4): the paper's output projection."""

    def __init__(self, output: nn.Linear) -> None:
        super().__init__()
        self.output = output

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(hidden)


class ScaledLanguageHead(LanguageHead):
    """W (scale * h): T5 scales by d_model^-1/2 where head and embeddings are one matrix."""

    def __init__(self, output: nn.Linear, scale: float) -> None:
        super().__init__(output)
        self.scale = scale

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(hidden * self.scale)


class CappedLanguageHead(LanguageHead):
    """cap * tanh(logits / cap): no score beyond the cap (Gemma 2, arXiv:2408.00118, section 2.2)."""

    def __init__(self, output: nn.Linear, cap: float) -> None:
        super().__init__(output)
        self.cap = cap

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.cap * torch.tanh(super().forward(hidden) / self.cap)
