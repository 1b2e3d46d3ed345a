"""Claim: the factor 1/sqrt(d_k) keeps softmax out of saturation and its gradients healthy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headwise.core.attention import scaled_dot_product_attention
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study.claim import Claim, Plan, mean_of, series_by
from headwise.lab.study.statement import Looks, Row, Statement, over_seeds

KEPT = 0.7  # of entropy or gradient at the smallest d_k: less is "falls"
WITH, WITHOUT = "with 1/sqrt(d_k)", "without"


@dataclass(frozen=True)
class Condition:
    """Queries and keys with independent components of variance 1, as section 3.2.1 of the paper assumes."""

    d_k: int
    keys: int
    queries: int
    device: str


def conditions(plan: Plan) -> list[Condition]:
    """Widths four times apart."""
    widths = plan.pick([4, 64, 1024], [1, 4, 16, 64, 256, 1024, 4096])
    return [Condition(d_k, keys=64, queries=plan.pick(16, 2048), device=plan.device) for d_k in widths]


def measure(condition: Condition, seed: int) -> list[Row]:
    """Entropy of the weights, and the gradient that reaches the scores from a random direction of the output."""
    c = condition
    q, k, v, direction = (
        torch.randn(1, 1, rows, c.d_k, device=c.device) for rows in (c.queries, c.keys, c.keys, c.queries)
    )
    return [_row(q, k, v, direction, name, factor) for name, factor in ((WITH, 1.0), (WITHOUT, math.sqrt(c.d_k)))]


def _row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, direction: torch.Tensor, name: str, factor: float) -> Row:
    """Multiplying the queries by sqrt(d_k) cancels the factor in the function that the model uses."""
    q = q * factor
    _, weights = scaled_dot_product_attention(q, k, v)
    bits = -(weights * weights.clamp_min(1e-30).log2()).sum(-1).mean() / math.log2(k.size(-2))
    # How scores change the output, through the softmax only, whatever the scale of the queries.
    direction = direction / direction.norm(dim=-1, keepdim=True)
    pull = (v.detach() @ direction.transpose(-2, -1)).transpose(-2, -1)  # (1, 1, queries, keys)
    slope = weights * (pull - (weights * pull).sum(-1, keepdim=True))
    return {
        "factor": name,
        "entropy": bits.item(),
        "largest": weights.max(-1).values.mean().item(),
        "gradient": slope.norm(dim=-1).mean().item(),
    }


def figures(rows: Sequence[Row]) -> list[Figure]:
    """Entropy and gradient against d_k."""
    x = "width of queries and keys d_k (components)"
    entropy, gradient = (series_by(rows, "factor", "d_k", key) for key in ("entropy", "gradient"))
    return [
        Figure(
            "scaled-dot-product",
            "Left: how evenly attention spreads over 64 keys. Right: the gradient that gets through the softmax. "
            "Queries and keys are random with variance 1, as the paper assumes.",
            "Two line charts against d_k. With the factor both stay level; without it entropy and gradient fall.",
            [
                Panel("Entropy of the weights", x, "entropy / log2(keys) (1 = even)", entropy, y_range=(0, 1.05)),
                Panel("Gradient through the softmax", x, "norm of d output / d scores", gradient, log_y=True),
            ],
        )
    ]


def share_kept(rows: Sequence[Row], key: str, factor: str) -> float:
    """A column at the largest d_k as a share of that at the smallest."""
    small, large = (end(row["d_k"] for row in rows) for end in (min, max))
    return mean_of(rows, key, factor=factor, d_k=large) / mean_of(rows, key, factor=factor, d_k=small)


STATEMENTS = (
    *(
        Statement(
            f"{key}-with",
            f"With the factor more than {KEPT:.0%} of the {key} {of} remains as d_k grows.",
            f"{key} at the largest d_k / {key} at the smallest",
            over_seeds(lambda rows, key=key: share_kept(rows, key, WITH)),
            above=KEPT,
        )
        for key, of in (("entropy", "of the weights"), ("gradient", "through the softmax"))
    ),
    *(
        Statement(
            f"{key}-without",
            f"Without the factor less than {KEPT:.0%} of the {key} {of} remains as d_k grows.",
            f"{key} at the largest d_k / {key} at the smallest",
            over_seeds(lambda rows, key=key: share_kept(rows, key, WITHOUT)),
            below=KEPT,
        )
        for key, of in (("entropy", "of the weights"), ("gradient", "through the softmax"))
    ),
)

CLAIM = Claim(
    name="scaled-dot-product",
    sentence="Dividing by the square root of d_k keeps the softmax out of saturation and its gradients healthy.",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1 and its footnote 4",
    method="Random queries and keys go through the project's own attention with the factor and without it. Entropy "
    "shows whether the softmax is saturated (0: all weight on one key), the gradient whether training could continue.",
    conditions=conditions,
    measure=measure,
    figures=figures,
    statements=STATEMENTS,
    cost=0.5,
    looks=Looks(20, 20),
)
