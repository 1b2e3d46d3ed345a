"""Each update compared with its algorithm in numpy, float64; then properties of the whole stack.

`p` maps names of parameters to arrays; the indices are the paper's, and so are the numbered lines in the comments.
"""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from headwise.pytorch.architectures import evoformer
from headwise.pytorch.architectures.evoformer import EvoformerBlock, EvoformerShape, build_evoformer

Array = NDArray[np.float64]
Parameters = dict[str, Array]

S, R = 3, 4  # sequences, residues
SHAPE = EvoformerShape(
    n_blocks=2, c_m=6, c_z=5, c_s=7, msa_heads=3, pair_heads=2, c_head=4, c_outer=3, c_triangle=5, expansion=2
)


# --- numpy


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def linear(p: Parameters, name: str, x: Array) -> Array:
    return p[f"{name}.weight"] @ x + p.get(f"{name}.bias", np.zeros(()))


def layer_norm(p: Parameters, name: str, x: Array) -> Array:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def normed(p: Parameters, name: str, table: Array) -> Array:
    out = np.empty_like(table)
    for at in np.ndindex(table.shape[:2]):
        out[at] = layer_norm(p, name, table[at])
    return out


def head(p: Parameters, name: str, x: Array, h: int, n_heads: int) -> Array:
    return linear(p, name, x).reshape(n_heads, -1)[h]


def algorithm_7(p: Parameters, m: Array, z: Array) -> Array:
    """MSARowAttentionWithPairBias."""
    n_heads, c = SHAPE.msa_heads, SHAPE.c_head
    m = normed(p, "norm", m)  # 1
    out = np.zeros_like(m)
    for s, i in product(range(S), range(R)):
        o = []
        for h in range(n_heads):
            q = head(p, "attn.q_proj", m[s, i], h, n_heads)  # 2
            scores = np.empty(R)
            for j in range(R):
                b = linear(p, "bias_proj", layer_norm(p, "pair_norm", z[i, j]))[h]  # 3
                scores[j] = q @ head(p, "attn.k_proj", m[s, j], h, n_heads) / np.sqrt(c) + b  # 5
            a = softmax(scores)
            g = sigmoid(head(p, "attn.gate_proj", m[s, i], h, n_heads))  # 4
            o.append(g * sum(a[j] * head(p, "attn.v_proj", m[s, j], h, n_heads) for j in range(R)))  # 6
        out[s, i] = linear(p, "attn.o_proj", np.concatenate(o))  # 7
    return out


def algorithm_8(p: Parameters, m: Array) -> Array:
    """MSAColumnAttention."""
    n_heads, c = SHAPE.msa_heads, SHAPE.c_head
    m = normed(p, "norm", m)  # 1
    out = np.zeros_like(m)
    for s, i in product(range(S), range(R)):
        o = []
        for h in range(n_heads):
            q = head(p, "attn.q_proj", m[s, i], h, n_heads)  # 2
            a = softmax(np.array([q @ head(p, "attn.k_proj", m[t, i], h, n_heads) / np.sqrt(c) for t in range(S)]))  # 4
            g = sigmoid(head(p, "attn.gate_proj", m[s, i], h, n_heads))  # 3
            o.append(g * sum(a[t] * head(p, "attn.v_proj", m[t, i], h, n_heads) for t in range(S)))  # 5
        out[s, i] = linear(p, "attn.o_proj", np.concatenate(o))  # 6
    return out


def algorithm_9_and_15(p: Parameters, x: Array) -> Array:
    """MSATransition, PairTransition."""
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape[:2]):
        a = linear(p, "up_proj", layer_norm(p, "norm", x[at]))  # 1, 2
        out[at] = linear(p, "down_proj", np.maximum(a, 0))  # 3
    return out


def algorithm_10(p: Parameters, m: Array) -> Array:
    """OuterProductMean."""
    m = normed(p, "norm", m)  # 1
    out = np.zeros((R, R, SHAPE.c_z))
    for i, j in product(range(R), range(R)):
        pairs = [np.outer(linear(p, "a_proj", m[s, i]), linear(p, "b_proj", m[s, j])) for s in range(S)]  # 2
        out[i, j] = linear(p, "o_proj", np.mean(pairs, 0).flatten())  # 3, 4
    return out


def triangle_multiplication(p: Parameters, z: Array, sides: Callable[[int, int, int], tuple]) -> Array:
    """TriangleMultiplication; `sides(i, j, k)` are the edges that line 4 multiplies."""
    z = normed(p, "norm", z)  # 1

    def projected(name: str, edge: Array) -> Array:
        return sigmoid(linear(p, f"{name}_gate_proj", edge)) * linear(p, f"{name}_proj", edge)  # 2

    out = np.zeros_like(z)
    for i, j in product(range(R), range(R)):
        g = sigmoid(linear(p, "gate_proj", z[i, j]))  # 3
        edges = [sides(i, j, k) for k in range(R)]
        total = sum(projected("a", z[a]) * projected("b", z[b]) for a, b in edges)
        out[i, j] = g * linear(p, "o_proj", layer_norm(p, "product_norm", np.asarray(total)))  # 4
    return out


def algorithm_11(p: Parameters, z: Array) -> Array:
    """TriangleMultiplicationOutgoing."""
    return triangle_multiplication(p, z, lambda i, j, k: ((i, k), (j, k)))


def algorithm_12(p: Parameters, z: Array) -> Array:
    """TriangleMultiplicationIncoming."""
    return triangle_multiplication(p, z, lambda i, j, k: ((k, i), (k, j)))


def triangle_attention(p: Parameters, z: Array, edges: Callable[[int, int, int], tuple]) -> Array:
    """TriangleAttention; `edges(i, j, k)` are the attended edge and the edge of the bias (line 5)."""
    n_heads, c = SHAPE.pair_heads, SHAPE.c_head
    z = normed(p, "norm", z)  # 1
    out = np.zeros_like(z)
    for i, j in product(range(R), range(R)):
        o = []
        for h in range(n_heads):
            q = head(p, "attn.q_proj", z[i, j], h, n_heads)  # 2
            looked_at = [edges(i, j, k) for k in range(R)]
            scores = [
                q @ head(p, "attn.k_proj", z[key], h, n_heads) / np.sqrt(c) + linear(p, "bias_proj", z[third])[h]  # 3
                for key, third in looked_at
            ]
            a = softmax(np.array(scores))  # 5
            g = sigmoid(head(p, "attn.gate_proj", z[i, j], h, n_heads))  # 4
            values = [head(p, "attn.v_proj", z[key], h, n_heads) for key, _ in looked_at]
            o.append(g * sum(weight * value for weight, value in zip(a, values, strict=True)))  # 6
        out[i, j] = linear(p, "attn.o_proj", np.concatenate(o))  # 7
    return out


def algorithm_13(p: Parameters, z: Array) -> Array:
    """TriangleAttentionStartingNode."""
    return triangle_attention(p, z, lambda i, j, k: ((i, k), (j, k)))


def algorithm_14(p: Parameters, z: Array) -> Array:
    """TriangleAttentionEndingNode."""
    return triangle_attention(p, z, lambda i, j, k: ((k, j), (k, i)))


# --- each update is its algorithm


def randomised(module: nn.Module) -> nn.Module:
    """The module with random numbers for parameters that start as zero or one."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module.eval()


def parameters(module: nn.Module) -> Parameters:
    return {name: value.double().numpy() for name, value in module.state_dict().items()}


BLOCK = randomised(EvoformerBlock(SHAPE))
UPDATES = [  # the update, its inputs, its algorithm
    ("msa_row_attn", "mz", algorithm_7),
    ("msa_column_attn", "m", algorithm_8),
    ("msa_transition", "m", algorithm_9_and_15),
    ("outer_product_mean", "m", algorithm_10),
    ("triangle_outgoing", "z", algorithm_11),
    ("triangle_incoming", "z", algorithm_12),
    ("triangle_starting", "z", algorithm_13),
    ("triangle_ending", "z", algorithm_14),
    ("pair_transition", "z", algorithm_9_and_15),
]


def tables(batch: int = 1) -> dict[str, torch.Tensor]:
    return {"m": torch.randn(batch, S, R, SHAPE.c_m), "z": torch.randn(batch, R, R, SHAPE.c_z)}


@pytest.mark.parametrize(("name", "reads", "algorithm"), UPDATES, ids=[name for name, _, _ in UPDATES])
def test_update_is_its_algorithm(name: str, reads: str, algorithm: Callable[..., Array]) -> None:
    module, inputs = getattr(BLOCK, name), [tables()[letter] for letter in reads]
    mask = [] if "transition" in name else [torch.ones(inputs[0].shape[:3], dtype=torch.bool)]
    found = module(*inputs, *mask)[0]
    wanted = algorithm(parameters(module), *(x[0].double().numpy() for x in inputs))
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-5, rtol=1e-5)


def test_block_adds_the_updates_in_their_order() -> None:
    start = tables()
    m, z = (start[letter][0].double().numpy() for letter in "mz")
    for name, reads, algorithm in UPDATES:
        update = algorithm(parameters(getattr(BLOCK, name)), *({"m": m, "z": z}[letter] for letter in reads))
        if update.shape == m.shape:
            m = m + update
        else:
            z = z + update
    found = BLOCK(start["m"], start["z"], torch.ones(1, S, R) > 0, torch.ones(1, R, R) > 0)
    np.testing.assert_allclose(found[0][0].detach().numpy(), m, atol=1e-4, rtol=1e-5)
    np.testing.assert_allclose(found[1][0].detach().numpy(), z, atol=1e-4, rtol=1e-5)


# --- properties of the stack


def stack() -> evoformer.Evoformer:
    torch.manual_seed(5)
    model = build_evoformer(SHAPE)
    randomised(model)
    return model


@torch.no_grad()
def test_order_of_the_other_sequences_does_not_matter() -> None:
    model, x = stack(), tables()
    order = torch.tensor([0, 2, 1])
    plain, permuted = model(x["m"], x["z"]), model(x["m"][:, order], x["z"])
    torch.testing.assert_close(permuted.m, plain.m[:, order], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(permuted.z, plain.z, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(permuted.s, plain.s, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_permuting_residues_permutes_the_output() -> None:
    model, x = stack(), tables()
    order = torch.tensor([2, 0, 3, 1])
    plain, permuted = model(x["m"], x["z"]), model(x["m"][:, :, order], x["z"][:, order][:, :, order])
    torch.testing.assert_close(permuted.z, plain.z[:, order][:, :, order], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(permuted.s, plain.s[:, order], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_padded_sequences_and_residues_change_nothing() -> None:
    model, x = stack(), tables()
    plain = model(x["m"], x["z"])
    m, z = torch.randn(1, S + 2, R + 3, SHAPE.c_m), torch.randn(1, R + 3, R + 3, SHAPE.c_z)
    m[:, :S, :R], z[:, :R, :R] = x["m"], x["z"]
    mask = torch.zeros(1, S + 2, R + 3, dtype=torch.bool)
    mask[:, :S, :R] = True
    padded = model(m, z, mask)
    assert padded.m.isfinite().all() and padded.z.isfinite().all()
    torch.testing.assert_close(padded.m[:, :S, :R], plain.m, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(padded.z[:, :R, :R], plain.z, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(padded.s[:, :R], plain.s, atol=1e-4, rtol=1e-4)


def test_a_gap_of_one_sequence_is_never_read() -> None:
    model, x = stack(), tables()
    mask = torch.ones(1, S, R, dtype=torch.bool)
    mask[0, 1, 2] = False
    m = x["m"].requires_grad_()
    out = model(m, x["z"], mask)
    (gradient,) = torch.autograd.grad(out.z.sum() + out.m[mask].sum(), m)
    assert (gradient[0, 1, 2] == 0).all() and (gradient[mask].abs() > 0).all()


@pytest.mark.parametrize("name", ["triangle_outgoing", "triangle_incoming", "triangle_starting", "triangle_ending"])
def test_a_masked_pair_is_not_read_by_others(name: str) -> None:
    """In one direction only, to detect a transposed mask. A bias is read from every pair."""
    module = randomised(getattr(EvoformerBlock(SHAPE), name))
    if hasattr(module, "bias_proj"):
        nn.init.zeros_(module.bias_proj.weight)
    mask = torch.ones(1, R, R, dtype=torch.bool)
    mask[0, 1, 2] = False
    z = tables()["z"].requires_grad_()
    (gradient,) = torch.autograd.grad(module(z, mask)[mask].sum(), z)
    assert (gradient[0, 1, 2] == 0).all() and (gradient[mask].abs() > 0).all()


def test_fresh_block_changes_nothing_and_its_gates_are_nearly_open() -> None:
    block, x = EvoformerBlock(SHAPE), tables()
    m, z = block(x["m"], x["z"], torch.ones(1, S, R) > 0, torch.ones(1, R, R) > 0)
    assert m.equal(x["m"]) and z.equal(x["z"])
    gate = block.triangle_starting.attn.gate_proj(x["z"]).sigmoid()
    torch.testing.assert_close(gate, torch.full_like(gate, 0.7310586))


@pytest.mark.parametrize("along", [1, 2])
def test_dropout_is_one_draw_for_all_rows_or_all_columns(along: int) -> None:
    dropout, x = evoformer.SharedDropout(0.5, along), torch.ones(2, 5, 6, 7)
    out = dropout(x)
    assert sorted(out.unique().tolist()) == [0.0, 2.0]
    assert out.equal(out.narrow(along, 0, 1).expand_as(out)) and not out.equal(
        out.narrow(3 - along, 0, 1).expand_as(out)
    )
    assert dropout.eval()(x).equal(x)


def test_where_the_block_drops() -> None:
    """Algorithm 6: rows share the mask everywhere except around the ending node."""
    block = EvoformerBlock(EvoformerShape(n_blocks=1))
    found = [(d.probability, d.along) for d in (block.msa_dropout, block.row_dropout, block.column_dropout)]
    assert found == [(0.15, 1), (0.25, 1), (0.25, 2)]


def test_everything_has_a_gradient() -> None:
    model, x = stack().train(), tables(batch=2)
    out = model(x["m"], x["z"])
    (out.m.sum() + out.z.square().sum() + out.s.square().sum()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()] == []


def test_paper_sizes_are_the_default() -> None:
    """48 blocks have 88 of the 93 million parameters of AlphaFold 2."""
    with torch.device("meta"):
        block = EvoformerBlock(EvoformerShape())
    assert sum(p.numel() for p in block.parameters()) == 1_829_952
