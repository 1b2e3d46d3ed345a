"""Heads: from the last hidden states to logits.

The paper's output projection is `LanguageHead`. Classifiers that pool all states are in `pooled.py`.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.core.extensions.pooled import Pooling, first_state
from headwise.core.layers import Activation


class LanguageHead(nn.Module):
    """W h (+ b), a score for each token of the vocabulary (section 3.4): the paper's output projection."""

    def __init__(self, output: nn.Linear) -> None:
        super().__init__()
        self.output = output

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(hidden)


class ScaledLanguageHead(LanguageHead):
    """W (scale * h): T5 scales by d_model^-1/2 if head and embeddings are tied."""

    def __init__(self, output: nn.Linear, scale: float) -> None:
        super().__init__(output)
        self.scale = scale

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(hidden * self.scale)


class CappedLanguageHead(LanguageHead):
    """cap * tanh(logits / cap): soft-capped scores (Gemma 2, arXiv:2408.00118, section 2.2)."""

    def __init__(self, output: nn.Linear, cap: float) -> None:
        super().__init__(output)
        self.cap = cap

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.cap * torch.tanh(super().forward(hidden) / self.cap)


class MaskedLanguageHead(nn.Module):
    """W norm(act(W_t h + b_t)) + b: predicts masked tokens (BERT, arXiv:1810.04805)."""

    def __init__(self, dense: nn.Linear, activation: Activation, norm: nn.Module, output: nn.Linear) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.output = output

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores."""
        return self.output(self.norm(self.activation(self.dense(hidden))))


class ReplacedTokenHead(nn.Module):
    """w act(W_t h + b_t) + b: a score for each token, above 0 if replaced (ELECTRA, arXiv:2003.10555)."""

    def __init__(self, dense: nn.Linear, activation: Activation, output: nn.Linear) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.output = output

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any"]:
        """Unnormalised scores."""
        return self.output(self.activation(self.dense(hidden))).squeeze(-1)


class TextClassHead(nn.Module):
    """W act(W_p h_0 + b_p) + b: text classification from the state of the first token.

    Args:
        norm: between activation and W (ModernBERT).
        state: the state to classify (`pooled.POOLINGS`), from all states and a mask.
    """

    def __init__(
        self,
        pool: nn.Linear,
        activation: Activation,
        classes: nn.Linear,
        norm: nn.Module | None = None,
        state: Pooling = first_state,
    ) -> None:
        super().__init__()
        self.pool = pool
        self.activation = activation
        self.classes = classes
        self.norm = norm or nn.Identity()
        self.state = state

    def forward(
        self, hidden: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch classes"]:
        """Unnormalised scores; `mask` is True on real tokens, None = all."""
        if mask is None:
            mask = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        return self.classes(self.norm(self.activation(self.pool(self.state(hidden, mask)))))


class TokenClassHead(nn.Module):
    """W h + b: token classification."""

    def __init__(self, classes: nn.Linear) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any classes"]:
        """Unnormalised scores."""
        return self.classes(hidden)


class NormedTokenClassHead(TokenClassHead):
    """W norm(act(W_t h + b_t)) + b: token classification (ModernBERT, arXiv:2412.13663)."""

    def __init__(self, dense: nn.Linear, activation: Activation, norm: nn.Module, classes: nn.Linear) -> None:
        super().__init__(classes)
        self.dense = dense
        self.activation = activation
        self.norm = norm

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any classes"]:
        """Unnormalised scores."""
        return self.classes(self.norm(self.activation(self.dense(hidden))))


class FirstStateHead(nn.Module):
    """The mean of W_i h_i + b_i over the first states: image classification, one state for ViT and two for DeiT."""

    def __init__(self, outputs: list[nn.Linear]) -> None:
        super().__init__()
        self.outputs = nn.ModuleList(outputs)

    def forward(self, hidden: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch classes"]:
        """Unnormalised scores."""
        return torch.stack([output(hidden[:, i]) for i, output in enumerate(self.outputs)]).mean(0)
