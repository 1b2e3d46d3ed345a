"""AlphaFold 2's Evoformer: attention over a table of aligned sequences and over all pairs of residues.

Jumper et al. 2021 (doi:10.1038/s41586-021-03819-2), supplementary methods, section 1.6, algorithms 6 to 15; names are
the paper's: `m` is the representation of the multiple sequence alignment (sequences s, t by residues i, j, k), `z` that
of pairs of residues, `s` that of single residues, c a width. Masks are boolean, True on real positions.

Changes to the Transformer: self-attention runs along one axis of a table; its output is gated; the other representation
adds a bias to the scores; and triangles of pairs update each other, for consistent distances.

The input embeddings of `m` and `z`, the structure module and recycling are not implemented.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class EvoformerShape:
    """Widths and numbers of the paper (section 1.6)."""

    n_blocks: int = 48
    c_m: int = 256  # width of the alignment's representation
    c_z: int = 128  # width of the pair representation
    c_s: int = 384  # width of the single representation
    msa_heads: int = 8
    pair_heads: int = 4
    c_head: int = 32  # width of each head, in `m` and in `z`
    c_outer: int = 32  # algorithm 10
    c_triangle: int = 128  # algorithms 11 and 12
    expansion: int = 4  # hidden width of transitions / width
    msa_dropout: float = 0.15
    pair_dropout: float = 0.25


class EvoformerOutput(NamedTuple):
    """The output of the stack."""

    m: Float[Tensor, "batch sequences residues c_m"]
    z: Float[Tensor, "batch residues residues c_z"]
    s: Float[Tensor, "batch residues c_s"]


def build_evoformer(shape: EvoformerShape) -> "Evoformer":
    """A stack with random initial parameters from torch's global generator."""
    blocks = [EvoformerBlock(shape) for _ in range(shape.n_blocks)]
    return Evoformer(blocks, nn.Linear(shape.c_m, shape.c_s))


class Evoformer(nn.Module):
    """Algorithm 6: the blocks, then the first sequence's row, projected, as single representation (line 12)."""

    def __init__(self, blocks: Sequence["EvoformerBlock"], single_proj: nn.Linear) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.single_proj = single_proj

    def forward(
        self,
        m: Float[Tensor, "batch sequences residues c_m"],
        z: Float[Tensor, "batch residues residues c_z"],
        msa_mask: Bool[Tensor, "batch sequences residues"] | None = None,
        pair_mask: Bool[Tensor, "batch residues residues"] | None = None,
    ) -> EvoformerOutput:
        """New representations; masked positions are undefined and have no influence on others.

        Without `pair_mask`, a pair is real if both residues are real in the first sequence, the one to fold.
        """
        if msa_mask is None:
            msa_mask = torch.ones(m.shape[:-1], dtype=torch.bool, device=m.device)
        if pair_mask is None:
            pair_mask = msa_mask[:, 0, :, None] & msa_mask[:, 0, None, :]
        for block in self.blocks:
            m, z = block(m, z, msa_mask, pair_mask)
        return EvoformerOutput(m, z, self.single_proj(m[:, 0]))


class EvoformerBlock(nn.Module):
    """Algorithm 6, lines 2 to 10: nine residual updates."""

    def __init__(self, shape: EvoformerShape) -> None:
        super().__init__()
        c_m, c_z, c_head, expansion = shape.c_m, shape.c_z, shape.c_head, shape.expansion
        self.msa_row_attn = RowAttentionWithPairBias(c_m, c_z, shape.msa_heads, c_head)
        self.msa_column_attn = ColumnAttention(c_m, shape.msa_heads, c_head)
        self.msa_transition = Transition(c_m, expansion)
        self.outer_product_mean = OuterProductMean(c_m, c_z, shape.c_outer)
        self.triangle_outgoing = TriangleMultiplicationOutgoing(c_z, shape.c_triangle)
        self.triangle_incoming = TriangleMultiplicationIncoming(c_z, shape.c_triangle)
        self.triangle_starting = TriangleAttentionStartingNode(c_z, shape.pair_heads, c_head)
        self.triangle_ending = TriangleAttentionEndingNode(c_z, shape.pair_heads, c_head)
        self.pair_transition = Transition(c_z, expansion)
        self.msa_dropout = SharedDropout(shape.msa_dropout, along=1)
        self.row_dropout = SharedDropout(shape.pair_dropout, along=1)
        self.column_dropout = SharedDropout(shape.pair_dropout, along=2)

    def forward(
        self,
        m: Float[Tensor, "batch sequences residues c_m"],
        z: Float[Tensor, "batch residues residues c_z"],
        msa_mask: Bool[Tensor, "batch sequences residues"],
        pair_mask: Bool[Tensor, "batch residues residues"],
    ) -> tuple[Float[Tensor, "batch sequences residues c_m"], Float[Tensor, "batch residues residues c_z"]]:
        """Both representations, updated."""
        m = m + self.msa_dropout(self.msa_row_attn(m, z, msa_mask))
        m = m + self.msa_column_attn(m, msa_mask)
        m = m + self.msa_transition(m)
        z = z + self.outer_product_mean(m, msa_mask)
        z = z + self.row_dropout(self.triangle_outgoing(z, pair_mask))
        z = z + self.row_dropout(self.triangle_incoming(z, pair_mask))
        z = z + self.row_dropout(self.triangle_starting(z, pair_mask))
        z = z + self.column_dropout(self.triangle_ending(z, pair_mask))
        return m, z + self.pair_transition(z)


class SharedDropout(nn.Module):
    """Dropout with one mask for all rows (`along=1`) or all columns (`along=2`) of a table (1.11.6)."""

    def __init__(self, probability: float, along: int) -> None:
        super().__init__()
        self.probability = probability
        self.along = along

    def forward(self, x: Float[Tensor, "batch rows columns c"]) -> Float[Tensor, "batch rows columns c"]:
        """Same shape in and out."""
        if not self.training or not self.probability:
            return x
        keep = x.new_ones([1 if axis == self.along else size for axis, size in enumerate(x.shape)])
        return x * F.dropout(keep, self.probability)


# --- Attention along one axis ---


class GatedAttention(nn.Module):
    """W^O concat_h(g^h * softmax(q^h k^hT / sqrt(c) + b^h) v^h), g = sigmoid(W^G x + b^G), in every row of a table.

    The common part of algorithms 7, 8, 13 and 14. Projections of queries, keys and values have no biases.
    """

    def __init__(self, width: int, n_heads: int, c_head: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q_proj = _glorot(nn.Linear(width, n_heads * c_head, bias=False))
        self.k_proj = _glorot(nn.Linear(width, n_heads * c_head, bias=False))
        self.v_proj = _glorot(nn.Linear(width, n_heads * c_head, bias=False))
        self.gate_proj = _open_gate(nn.Linear(width, n_heads * c_head))
        self.o_proj = _zero(nn.Linear(n_heads * c_head, width))

    def forward(
        self,
        x: Float[Tensor, "batch rows length width"],
        mask: Bool[Tensor, "batch rows length"],
        bias: Float[Tensor, "batch heads length length"] | None = None,
    ) -> Float[Tensor, "batch rows length width"]:
        """Every position attends to the real positions of its row; all rows share `bias`."""
        q, k, v = (self.split_heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # batch rows heads length length
        if bias is not None:
            scores = scores + bias.unsqueeze(1)
        # The lowest finite number, not -inf, which would give NaN for rows of padding.
        weights = scores.masked_fill(~mask[:, :, None, None], torch.finfo(x.dtype).min).softmax(-1)
        heads = (weights @ v).transpose(2, 3).flatten(3)
        return self.o_proj(self.gate_proj(x).sigmoid() * heads)

    def split_heads(self, x: Float[Tensor, "batch rows length w"]) -> Float[Tensor, "batch rows heads length c"]:
        """(batch, rows, length, heads * c) -> (batch, rows, heads, length, c)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(2, 3)


class RowAttentionWithPairBias(nn.Module):
    """Algorithm 7: within each sequence, residue i attends to residue j, with a bias from the pair."""

    def __init__(self, c_m: int, c_z: int, n_heads: int, c_head: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c_m)
        self.pair_norm = nn.LayerNorm(c_z)
        self.bias_proj = _lecun(nn.Linear(c_z, n_heads, bias=False))
        self.attn = GatedAttention(c_m, n_heads, c_head)

    def forward(
        self,
        m: Float[Tensor, "batch sequences residues c_m"],
        z: Float[Tensor, "batch residues residues c_z"],
        mask: Bool[Tensor, "batch sequences residues"],
    ) -> Float[Tensor, "batch sequences residues c_m"]:
        """The update of `m`."""
        bias = self.bias_proj(self.pair_norm(z)).permute(0, 3, 1, 2)
        return self.attn(self.norm(m), mask, bias)


class ColumnAttention(nn.Module):
    """Algorithm 8: at each residue, sequence s attends to sequence t."""

    def __init__(self, c_m: int, n_heads: int, c_head: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c_m)
        self.attn = GatedAttention(c_m, n_heads, c_head)

    def forward(
        self, m: Float[Tensor, "batch sequences residues c_m"], mask: Bool[Tensor, "batch sequences residues"]
    ) -> Float[Tensor, "batch sequences residues c_m"]:
        """The update of `m`."""
        columns = self.norm(m).transpose(1, 2)
        return self.attn(columns, mask.transpose(1, 2)).transpose(1, 2)


class TriangleAttentionStartingNode(nn.Module):
    """Algorithm 13: edge ij attends to the edges ik that start at i, with a bias from the third edge, jk."""

    def __init__(self, c_z: int, n_heads: int, c_head: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c_z)
        self.bias_proj = _lecun(nn.Linear(c_z, n_heads, bias=False))
        self.attn = GatedAttention(c_z, n_heads, c_head)

    def forward(
        self, z: Float[Tensor, "batch residues residues c_z"], mask: Bool[Tensor, "batch residues residues"]
    ) -> Float[Tensor, "batch residues residues c_z"]:
        """The update of `z`."""
        z = self.norm(z)
        return self.attn(z, mask, self.bias_proj(z).permute(0, 3, 1, 2))


class TriangleAttentionEndingNode(TriangleAttentionStartingNode):
    """Algorithm 14: edge ij attends to the edges kj that end at j, with a bias from ki (algorithm 13 reversed)."""

    def forward(
        self, z: Float[Tensor, "batch residues residues c_z"], mask: Bool[Tensor, "batch residues residues"]
    ) -> Float[Tensor, "batch residues residues c_z"]:
        """The update of `z`."""
        return super().forward(z.transpose(1, 2), mask.transpose(1, 2)).transpose(1, 2)


# --- Pair updates without attention, and from the alignment ---


class TriangleMultiplicationOutgoing(nn.Module):
    """Algorithm 11: edge ij is updated by the products of the edges ik and jk, for all k."""

    product = "bikc,bjkc->bijc"

    def __init__(self, c_z: int, c: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c_z)
        self.a_proj = _lecun(nn.Linear(c_z, c))
        self.b_proj = _lecun(nn.Linear(c_z, c))
        self.a_gate_proj = _open_gate(nn.Linear(c_z, c))
        self.b_gate_proj = _open_gate(nn.Linear(c_z, c))
        self.gate_proj = _open_gate(nn.Linear(c_z, c_z))
        self.product_norm = nn.LayerNorm(c)
        self.o_proj = _zero(nn.Linear(c, c_z))

    def forward(
        self, z: Float[Tensor, "batch residues residues c_z"], mask: Bool[Tensor, "batch residues residues"]
    ) -> Float[Tensor, "batch residues residues c_z"]:
        """The update of `z`."""
        z = self.norm(z)
        real = mask.unsqueeze(-1)
        a = self.a_gate_proj(z).sigmoid() * self.a_proj(z) * real
        b = self.b_gate_proj(z).sigmoid() * self.b_proj(z) * real
        product = torch.einsum(self.product, a, b)
        return self.gate_proj(z).sigmoid() * self.o_proj(self.product_norm(product))


class TriangleMultiplicationIncoming(TriangleMultiplicationOutgoing):
    """Algorithm 12: edge ij is updated by the products of the edges ki and kj, for all k."""

    product = "bkic,bkjc->bijc"


class OuterProductMean(nn.Module):
    """Algorithm 10: W flatten(mean_s(a_si (x) b_sj)) + b, from the alignment to pairs of residues.

    The mean is over sequences that are real at both residues; a pair without any gets only the bias. (AlphaFold's code
    also divides the bias, and by the count plus 0.001; this is the paper's formula.)
    """

    def __init__(self, c_m: int, c_z: int, c: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c_m)
        self.a_proj = _lecun(nn.Linear(c_m, c))
        self.b_proj = _lecun(nn.Linear(c_m, c))
        self.o_proj = _zero(nn.Linear(c * c, c_z))

    def forward(
        self, m: Float[Tensor, "batch sequences residues c_m"], mask: Bool[Tensor, "batch sequences residues"]
    ) -> Float[Tensor, "batch residues residues c_z"]:
        """The update of the pair representation."""
        m = self.norm(m)
        real = mask.to(m.dtype)
        a, b = (proj(m) * real.unsqueeze(-1) for proj in (self.a_proj, self.b_proj))
        outer = torch.einsum("bsic,bsjd->bijcd", a, b).flatten(3)
        count = torch.einsum("bsi,bsj->bij", real, real).clamp(min=1)
        return self.o_proj(outer / count.unsqueeze(-1))


class Transition(nn.Module):
    """Algorithms 9 and 15: W_2 max(0, W_1 norm(x) + b_1) + b_2, the feed-forward network of every position."""

    def __init__(self, width: int, expansion: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up_proj = nn.Linear(width, expansion * width)
        self.down_proj = _zero(nn.Linear(expansion * width, width))
        nn.init.kaiming_normal_(self.up_proj.weight, nonlinearity="relu")
        nn.init.zeros_(self.up_proj.bias)

    def forward(self, x: Float[Tensor, "batch rows columns width"]) -> Float[Tensor, "batch rows columns width"]:
        """The update of `x`."""
        return self.down_proj(F.relu(self.up_proj(self.norm(x))))


# --- Initial parameters (1.11.4): updates are 0, and gates nearly open ---


def _zero(linear: nn.Linear) -> nn.Linear:
    """For the last projection of an update."""
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def _open_gate(linear: nn.Linear) -> nn.Linear:
    """For gates: sigmoid(1) for every input."""
    nn.init.zeros_(linear.weight)
    nn.init.ones_(linear.bias)
    return linear


def _glorot(linear: nn.Linear) -> nn.Linear:
    """For queries, keys and values, which have no biases."""
    nn.init.xavier_uniform_(linear.weight)
    return linear


def _lecun(linear: nn.Linear) -> nn.Linear:
    """For everything else: variance 1 / inputs, biases of zero."""
    nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
