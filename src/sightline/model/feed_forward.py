"""Section 3.3: the position-wise feed-forward network."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2), at every position alike."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff)
        self.down_proj = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Same shape in and out."""
        return self.down_proj(F.relu(self.up_proj(x), inplace=True))
