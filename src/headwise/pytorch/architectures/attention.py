"""Attention before the Transformer: one head, one query per target position, and three scoring functions.

`weights` returns attention weights; `pytorch/inspect/recording.py` records them.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class DotAttention(nn.Module):
    """score(h_t, h_s) = h_t . h_s (Luong 2015, arXiv:1508.04025, section 3.1, "dot"); queries are as wide as keys.

    a = softmax(score) over the source, context = sum_s a_s v_s. Subclasses change only `keys` and `scores`.
    """

    def keys(self, states: Float[Tensor, "batch src_len width"]) -> Float[Tensor, "batch src_len d_key"]:
        """The keys, computed once for a source: here its states."""
        return states

    def scores(
        self, query: Float[Tensor, "batch queries d_model"], keys: Float[Tensor, "batch src_len d_key"]
    ) -> Float[Tensor, "batch queries src_len"]:
        """The score of each source position for each query."""
        return query @ keys.mT

    def weights(
        self,
        query: Float[Tensor, "batch queries d_model"],
        keys: Float[Tensor, "batch src_len d_key"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch queries src_len"]:
        """A distribution over the source positions for each query; padding has weight 0."""
        scores = self.scores(query, keys)
        return scores.masked_fill(~src_mask.unsqueeze(1), torch.finfo(scores.dtype).min).softmax(-1)

    def forward(
        self,
        query: Float[Tensor, "batch queries d_model"],
        keys: Float[Tensor, "batch src_len d_key"],
        values: Float[Tensor, "batch src_len width"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch queries width"]:
        """The context of each query: the weighted mean of `values`."""
        return self.weights(query, keys, src_mask) @ values


class GeneralAttention(DotAttention):
    """score(h_t, h_s) = h_t . W_a h_s (Luong 2015, section 3.1, "general"); W_a h_s are the keys."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.k_proj = nn.Linear(width, d_model, bias=False)

    def keys(self, states: Float[Tensor, "batch src_len width"]) -> Float[Tensor, "batch src_len d_model"]:
        """W_a h_s."""
        return self.k_proj(states)


class AdditiveAttention(DotAttention):
    """e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j) (Bahdanau 2015, arXiv:1409.0473, appendix A.1.2).

    U_a h_j are the keys, computed in advance as in the paper. The hidden layer is `d_model` wide.
    """

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(width, d_model, bias=False)
        self.score = nn.Linear(d_model, 1, bias=False)

    def keys(self, states: Float[Tensor, "batch src_len width"]) -> Float[Tensor, "batch src_len d_model"]:
        """U_a h_j."""
        return self.k_proj(states)

    def scores(
        self, query: Float[Tensor, "batch queries d_model"], keys: Float[Tensor, "batch src_len d_model"]
    ) -> Float[Tensor, "batch queries src_len"]:
        """The alignment model; it needs memory for batch x queries x src_len x d_model numbers."""
        hidden = (self.q_proj(query).unsqueeze(2) + keys.unsqueeze(1)).tanh()
        return self.score(hidden).squeeze(-1)
