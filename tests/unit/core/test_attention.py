"""Section 3.2: the two kernels against each other and against equation 1 written out."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise.core.attention import (
    DotProduct,
    MultiHeadAttention,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from headwise.core.masks import causal_mask

BATCH, HEADS, QUERIES, KEYS = 2, 3, 4, 5


def masks() -> dict[str, Tensor | None]:
    some = torch.rand(BATCH, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.6
    some[..., 0] = True
    return {
        "none": None,
        "padding": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None],
        "causal": causal_mask(QUERIES, KEYS, torch.device("cpu"))[None, None],
        "full": some,
    }


def queries_keys_values(d_k: int, d_v: int) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (QUERIES, d_k), (KEYS, d_k), (KEYS, d_v)
    q, k, v = (torch.randn(BATCH, HEADS, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return q, k, v


def equation_1(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The output for one query of one head, with forbidden keys left out instead of masked."""
    scores = k[allowed] @ q / math.sqrt(len(q))
    weights = np.exp(scores) / np.exp(scores).sum()
    return weights @ v[allowed]


@pytest.mark.parametrize(("d_k", "d_v"), [(6, 6), (6, 3), (3, 6)])
@pytest.mark.parametrize("mask", masks().values(), ids=masks())
def test_explicit_kernel_is_equation_1(d_k: int, d_v: int, mask: Tensor | None) -> None:
    q, k, v = (x.detach() for x in queries_keys_values(d_k, d_v))
    output, _ = scaled_dot_product_attention(q, k, v, mask)
    allowed = torch.ones(BATCH, HEADS, QUERIES, KEYS).bool() & (True if mask is None else mask)
    for b, h, i in np.ndindex(BATCH, HEADS, QUERIES):
        expected = equation_1(q[b, h, i].numpy(), k[b, h].numpy(), v[b, h].numpy(), allowed[b, h, i].numpy())
        np.testing.assert_allclose(output[b, h, i].numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(("d_k", "d_v"), [(6, 6), (6, 3), (3, 6)])
@pytest.mark.parametrize("mask", masks().values(), ids=masks())
def test_kernels_agree(d_k: int, d_v: int, mask: Tensor | None) -> None:
    """In values and gradients."""
    qkv = queries_keys_values(d_k, d_v)
    explicit, fused = scaled_dot_product_attention(*qkv, mask)[0], DotProduct()(*qkv, mask)
    torch.testing.assert_close(explicit, fused, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(explicit)
    torch.testing.assert_close(
        torch.autograd.grad(explicit, qkv, direction),
        torch.autograd.grad(fused, qkv, direction),
        rtol=1e-11,
        atol=1e-12,
    )


@pytest.mark.parametrize("mask", masks().values(), ids=masks())
def test_weights_are_a_distribution_over_allowed_keys(mask: Tensor | None) -> None:
    _, weights = scaled_dot_product_attention(*queries_keys_values(6, 6), mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, QUERIES, dtype=torch.float64))
    assert weights.min() >= 0
    if mask is not None:
        assert weights.masked_select(~mask).count_nonzero() == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kernel", ["explicit", "fused"])
def test_query_that_may_attend_to_nothing_gets_zero(kernel: str, dtype: torch.dtype) -> None:
    """Output zero and a finite gradient, although the formula is 0 / 0; other queries are not affected."""
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in queries_keys_values(6, 6))
    mask = torch.ones(BATCH, 1, QUERIES, KEYS, dtype=torch.bool)
    mask[0, 0, 1] = False

    def attend(mask: Tensor) -> Tensor:
        return DotProduct()(q, k, v, mask) if kernel == "fused" else scaled_dot_product_attention(q, k, v, mask)[0]

    output, others = attend(mask), mask[:, 0].any(-1)
    assert output[0, :, 1].count_nonzero() == 0
    torch.testing.assert_close(
        output.transpose(1, 2)[others], attend(torch.ones_like(mask)).transpose(1, 2)[others], equal_nan=False
    )
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(output.sum(), (q, k, v)))


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (1e4 * x.detach().float() for x in queries_keys_values(6, 6))
    assert scaled_dot_product_attention(q, k, v)[0].isfinite().all()
    assert DotProduct()(q, k, v, None).isfinite().all()


@pytest.mark.parametrize(("d_k", "d_v"), [(4, 4), (2, 7)])
def test_multi_head_attention_is_the_concatenation_of_its_heads(d_k: int, d_v: int) -> None:
    """Section 3.2.2: head i uses the i-th d_k (d_v) columns of the projections, and no others."""
    attention = MultiHeadAttention(d_model=8, n_heads=HEADS, d_k=d_k, d_v=d_v).double()
    x, memory = torch.randn(BATCH, QUERIES, 8).double(), torch.randn(BATCH, KEYS, 8).double()
    q, k, v = attention.q_proj(x), attention.k_proj(memory), attention.v_proj(memory)
    heads = []
    for i in range(HEADS):
        keys, values = slice(i * d_k, (i + 1) * d_k), slice(i * d_v, (i + 1) * d_v)
        weights = (q[..., keys] @ k[..., keys].mT / math.sqrt(d_k)).softmax(-1)
        heads.append(weights @ v[..., values])
    torch.testing.assert_close(
        attention(x, memory, None), attention.o_proj(torch.cat(heads, -1)), rtol=1e-12, atol=1e-12
    )


def test_heads_split_and_merge_back() -> None:
    x = torch.randn(BATCH, QUERIES, HEADS * 2)
    assert split_heads(x, HEADS).shape == (BATCH, HEADS, QUERIES, 2)
    assert torch.equal(split_heads(x, HEADS)[:, 1], x[..., 2:4])
    assert torch.equal(merge_heads(split_heads(x, HEADS)), x)
