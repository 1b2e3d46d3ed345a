"""From the last hidden states to what is no next piece of a text: what is masked or replaced, and classes.

Heads of whatever writes are in `heads.py`.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.network.feed_forward import Activation


class MaskedLanguageHead(nn.Module):
    """W norm(act(W_t h + b_t)) + b: what stood where a token is masked (BERT, arXiv:1810.04805)."""

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
    """w act(W_t h + b_t) + b: one number for each token, above 0 for replaced ones (ELECTRA, arXiv:2003.10555)."""

    def __init__(self, dense: nn.Linear, activation: Activation, output: nn.Linear) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.output = output

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any"]:
        """Unnormalised scores."""
        return self.output(self.activation(self.dense(hidden))).squeeze(-1)


class TextClassHead(nn.Module):
    """W act(W_p h_0 + b_p) + b: classes of a text, from the state at its first token."""

    def __init__(self, pool: nn.Linear, activation: Activation, classes: nn.Linear) -> None:
        super().__init__()
        self.pool = pool
        self.activation = activation
        self.classes = classes

    def forward(self, hidden: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch classes"]:
        """Unnormalised scores."""
        return self.classes(self.activation(self.pool(hidden[:, 0])))


class TokenClassHead(nn.Module):
    """W h + b: classes of each token."""

    def __init__(self, classes: nn.Linear) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any classes"]:
        """Unnormalised scores."""
        return self.classes(hidden)


class FirstStateHead(nn.Module):
    """The mean of W_i h_i + b_i over the first states: classes of a picture, one state for ViT and two for DeiT."""

    def __init__(self, outputs: list[nn.Linear]) -> None:
        super().__init__()
        self.outputs = nn.ModuleList(outputs)

    def forward(self, hidden: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch classes"]:
        """Unnormalised scores."""
        return torch.stack([output(hidden[:, i]) for i, output in enumerate(self.outputs)]).mean(0)
