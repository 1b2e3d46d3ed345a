"""Packed batches give the same outputs and gradients as padded ones, without leaks between sentences."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.config.model import ModelConfig, TransformerConfig
from headwise.config.network import RotaryConfig
from headwise.config.training import TrainConfig
from headwise.core.attention import MultiHeadAttention, merge_heads, scaled_dot_product_attention
from headwise.core.batches import collate
from headwise.core.build import FamilyNetwork, build
from headwise.core.layers import DecoderLayer, EncoderLayer, Sublayer
from headwise.core.loss import sequence_loss
from headwise.core.masks import PackedRows, Packing
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model, transformer_config
from headwise.pytorch.training import packed as training_packed
from headwise.pytorch.training.packed import LONGEST, attend_by_library, attention_for, packed_attention
from headwise.pytorch.training.step import real_states, translation_objective
from headwise.runtime.native.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="packing needs the compiled library")

LENGTHS = [(5, 3), (1, 1), (8, 9), (17, 2), (3, 30)]  # of queries and keys
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def rows_of(mask: Tensor) -> PackedRows:
    return PackedRows(mask, int(mask.sum()))


def rows_with(lengths: list[int]) -> PackedRows:
    return rows_of(torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def heads(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(0, 1)


def packed_rows(q: Tensor, k: Tensor, v: Tensor, n_heads: int, packing: Packing) -> Tensor:
    """Packed attention on (rows, heads * width)."""
    return merge_heads(packed_attention(*(heads(x, n_heads)[None] for x in (q, k, v)), packing))[0]


def sequence_by_sequence(q: Tensor, k: Tensor, v: Tensor, packing: Packing, n_heads: int) -> Tensor:
    """Equation 1, one sentence at a time."""
    outputs = []
    for i in range(len(packing.queries.mask)):
        rows, keys = (slice(int(s.starts[i]), int(s.starts[i + 1])) for s in (packing.queries, packing.keys))
        mask = torch.ones(rows.stop - rows.start, keys.stop - keys.start, dtype=torch.bool)
        mask = mask.tril() if packing.causal else mask
        own = (heads(x, n_heads)[None] for x in (q[rows], k[keys], v[keys]))
        outputs.append(scaled_dot_product_attention(*own, mask[None, None])[0][0].transpose(0, 1).flatten(1))
    return torch.cat(outputs)


@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("widths", [(8, 8), (16, 24), (40, 8)], ids=str)
@pytest.mark.parametrize("kind", ["own", "causal", "cross"])
def test_attention_and_its_gradients(kind: str, widths: tuple[int, int], n_heads: int) -> None:
    queries = rows_with([length for length, _ in LENGTHS])
    keys = rows_with([length for _, length in LENGTHS]) if kind == "cross" else queries
    packing = Packing(queries, keys, kind == "causal", attend_by_library)
    d_k, d_v = n_heads * widths[0], n_heads * widths[1]
    shapes = (queries, d_k), (keys, d_k), (keys, d_v)
    q, k, v = (torch.randn(rows.count, width, requires_grad=True) for rows, width in shapes)
    side_by_side = torch.cat([k, v], 1) if kind == "cross" else torch.cat([q, k, v], 1)
    *own, keys_read, values_read = side_by_side.split([d_k] * (1 + (kind != "cross")) + [d_v], 1)
    ours = packed_rows(own[0] if own else q, keys_read, values_read, n_heads, packing)
    textbook = sequence_by_sequence(q, k, v, packing, n_heads)
    torch.testing.assert_close(ours, textbook, **CLOSE)
    upstream = torch.randn_like(ours)
    expected = torch.autograd.grad(textbook, (q, k, v), upstream)
    torch.testing.assert_close(torch.autograd.grad(ours, (q, k, v), upstream), expected, **CLOSE)


def config(**changes: object) -> ModelConfig:
    shape = {"vocab_size": 20, "d_model": 32, "d_ff": 40, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2}
    return TransformerConfig(**(shape | {"dropout": 0.0} | changes))  # pyright: ignore[reportArgumentType]


def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    src, tgt_in = torch.randint(4, 20, (4, 9)), torch.randint(4, 20, (4, 12))
    src_mask = torch.arange(9) < torch.tensor([[9], [1], [4], [8]])
    tgt_mask = torch.arange(12) < torch.tensor([[2], [12], [7], [1]])
    return src, tgt_in, src_mask, tgt_mask


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_position": "pre"}, {"positions": "learned"}, {"d_k": 8, "d_v": 24}, {"cross_heads": (1, 2)}],
    ids=str,
)
def test_a_model_without_padding(changes: dict[str, object]) -> None:
    model = build_model(config(**changes))
    src, tgt_in, src_mask, tgt_mask = batch()
    padded = model.states(src, tgt_in, src_mask)[tgt_mask]
    packed = real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask))
    torch.testing.assert_close(packed, padded, **CLOSE)
    parameters = [p for name, p in model.named_parameters() if name != "head.output.weight" or p.requires_grad]
    upstream = torch.randn_like(packed)
    gradients = (torch.autograd.grad(x, parameters, upstream, allow_unused=True) for x in (packed, padded))
    torch.testing.assert_close(*map(list, gradients), rtol=1e-3, atol=1e-4)


PAPER = (
    (Transformer, "encode"),
    (Transformer, "decode"),
    (EncoderLayer, "forward"),
    (DecoderLayer, "forward"),
    (Sublayer, "forward"),
    (MultiHeadAttention, "forward"),
)


@pytest.mark.parametrize("padded", [False, True])
def test_a_training_step_runs_the_modules_of_the_paper(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> Callable[..., Any]:
        method = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            calls[f"{owner.__name__}.{name}"] += 1
            return method(*arguments, **named)

        return call

    for owner, name in PAPER:
        monkeypatch.setattr(owner, name, counted(owner, name))
    monkeypatch.setattr(
        "headwise.pytorch.training.packed.packed_attention", counted(training_packed, "packed_attention")
    )
    model = build_model(config())
    translation_objective(model, 0, TrainConfig(), padded)(collate([([5, 6], [7]), ([8], [9, 9])], 0, 1, 2))
    layers = {"EncoderLayer.forward": 2, "DecoderLayer.forward": 2}
    parts = {"Sublayer.forward": 2 * 2 + 2 * 3, "MultiHeadAttention.forward": 2 * 1 + 2 * 2}
    packed = {} if padded else {"headwise.pytorch.training.packed.packed_attention": 6}
    assert calls == {"Transformer.encode": 1, "Transformer.decode": 1} | layers | parts | packed


def test_padding_is_never_read() -> None:
    model = build_model(config())
    src, tgt_in, src_mask, tgt_mask = batch()
    before = real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask))
    other = src.masked_fill(~src_mask, 7), tgt_in.masked_fill(~tgt_mask, 7)
    assert torch.equal(real_states(model, *other, rows_of(src_mask), rows_of(tgt_mask)), before)


@pytest.mark.parametrize("why", ["double", "narrow heads", "long", "no library"])
def test_otherwise_the_padded_model_is_used(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(config(d_k=4) if why == "narrow heads" else config())
    src, tgt_in, src_mask, tgt_mask = batch()
    if why == "double":
        model.double()
    if why == "long":
        monkeypatch.setattr("headwise.pytorch.training.packed.LONGEST", 11)
    if why == "no library":
        monkeypatch.setattr("headwise.pytorch.training.packed.training_library", lambda: None)
    monkeypatch.setattr("headwise.pytorch.training.step.packed_states", None)
    torch.testing.assert_close(
        real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask)),
        model.states(src, tgt_in, src_mask)[tgt_mask],
    )


PLAIN = transformer_config(config())
BOTH = PLAIN.encoder, PLAIN.decoder


def varied(**changes: object) -> FamilyNetwork:
    """The plain network with changed fields in both stacks."""
    encoder, decoder = (replace(stack, **changes) for stack in BOTH if stack)
    return build(replace(PLAIN, encoder=encoder, decoder=decoder))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "rms", "norm_position": "pre"},
        {"activation": "silu", "gated": True, "ffn_bias": False},
        {"positions": "learned", "max_len": 12, "position_offset": 2, "embedding_norm": True},
        {"positions": "sinusoidal_tensor2tensor", "count_from": 0, "position_offset": 1},
        {"positions": "none", "rotary": RotaryConfig(16)},
        {"rotary": RotaryConfig(8), "normalise_heads": True, "norm": "rms"},
        {"attention_bias": ""},
    ],
    ids=str,
)
def test_other_modules_are_packed(changes: dict[str, object]) -> None:
    model: Any = varied(**changes)
    src, tgt_in, src_mask, tgt_mask = batch()
    src, tgt_in = src * src_mask, tgt_in * tgt_mask  # padding has the id 0, which one of these looks at
    assert attention_for(model, src_mask, tgt_mask)
    packed = real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask))
    torch.testing.assert_close(packed, model.states(src, tgt_in, src_mask)[tgt_mask], **CLOSE)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_kv_heads": 1},
        {"relative_buckets": 8},
        {"score_cap": 5.0},
        {"score_scale": 1.0},
        {"attention_bias": "qo"},
        {"windows": (3, 3)},
    ],
    ids=str,
)
def test_other_attention_is_padded(changes: dict[str, object]) -> None:
    assert not attention_for(varied(**changes), *batch()[2:])


def test_attention_for() -> None:
    mask, model = torch.ones(1, LONGEST, dtype=torch.bool), build_model(config())
    assert attention_for(model, mask)
    assert not attention_for(build_model(config(d_v=12)), mask)
    assert not attention_for(model, torch.ones(1, LONGEST + 1, dtype=torch.bool))
    with torch.autocast("cpu", torch.bfloat16):
        assert attention_for(model, mask)


def test_results_do_not_depend_on_threads() -> None:
    """Work is split differently, with identical results, including dropout."""
    model = build_model(config(dropout=0.3)).train()
    src, tgt_in, src_mask, tgt_mask = (x.repeat(40, 1) for x in batch())
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            torch.manual_seed(1)
            hidden = real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask))
            loss = sequence_loss(hidden[None], model.head.output.weight, tgt_in[tgt_mask], 0.1).objective
            (gradient,) = torch.autograd.grad(loss, [model.src_embeddings.tokens.weight])
        finally:
            torch.set_num_threads(1)
        results.append((hidden.detach(), loss.detach(), gradient))
    torch.testing.assert_close(*results, **CLOSE)


# In bfloat16 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("widths", [(8, 8), (16, 24), (40, 8)], ids=str)
@pytest.mark.parametrize("kind", ["causal", "cross"])
def test_attention_is_that_of_float32_rounded(kind: str, widths: tuple[int, int]) -> None:
    queries = rows_with([length for length, _ in LENGTHS])
    keys = rows_with([length for _, length in LENGTHS]) if kind == "cross" else queries
    packing, n_heads = Packing(queries, keys, kind == "causal", attend_by_library), 3
    shapes = (queries, widths[0]), (keys, widths[0]), (keys, widths[1])
    given = [torch.randn(rows.count, n_heads * width) for rows, width in shapes]
    upstream = torch.randn(queries.count, n_heads * widths[1]).bfloat16()
    found, wanted = (attended(given, dtype, upstream, n_heads, packing) for dtype in (True, False))
    for half, full in zip(found, wanted, strict=True):
        assert half.dtype == torch.bfloat16
        assert torch.equal(half, full.bfloat16())


def attended(given: list[Tensor], half: bool, upstream: Tensor, *how: Any) -> list[Tensor]:
    """Outputs and gradients, computed from the same numbers."""
    inputs = [x.bfloat16() if half else x.bfloat16().float() for x in given]
    inputs = [x.requires_grad_() for x in inputs]
    out = packed_rows(*inputs, *how)
    return [out, *torch.autograd.grad(out, inputs, upstream.to(out.dtype))]


@pytest.fixture
def autocast() -> Iterator[None]:
    """Products in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        yield


VARIANTS: list[dict[str, object]] = [
    {},
    {"norm": "rms", "norm_position": "pre"},
    {"activation": "silu", "gated": True, "ffn_bias": False},
    {"positions": "none", "rotary": RotaryConfig(16)},
    {"rotary": RotaryConfig(8), "normalise_heads": True, "norm": "rms"},
    {"attention_bias": ""},
]


@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # torch's, of norms of heads with padding
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_network_in_bfloat16(changes: dict[str, object], autocast: None) -> None:
    """As close to float32 as torch's autocast with padding; gradients are float32."""
    model: Any = varied(**changes)
    src, tgt_in, src_mask, tgt_mask = batch()
    with torch.autocast("cpu", enabled=False):
        exact = model.states(src, tgt_in, src_mask)[tgt_mask]
    padded, packed = (
        model.states(src, tgt_in, src_mask)[tgt_mask],
        real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask)),
    )
    assert attention_for(model, src_mask, tgt_mask)
    assert packed.dtype == torch.float32
    assert not torch.equal(packed, exact)
    assert (packed - exact).norm() < 1.5 * (padded - exact).norm() < 0.03 * exact.norm()
    weight, targets = model.get_parameter("output.weight"), tgt_in[tgt_mask]
    sequence_loss(packed[None], weight, targets, 0.1).objective.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    oracle = copy.deepcopy(model).float()
    oracle.zero_grad()
    with torch.autocast("cpu", enabled=False):
        states = oracle.states(src, tgt_in, src_mask)[tgt_mask]
        sequence_loss(states[None], oracle.get_parameter("output.weight"), targets, 0.1).objective.backward()
    for name, gradient in found.items():
        wanted = oracle.get_parameter(name).grad
        assert gradient is not None and wanted is not None and gradient.dtype == torch.float32
        assert (gradient - wanted).norm() < 0.1 * wanted.norm() + 1e-2, name


def test_two_steps_from_one_seed_are_bit_identical(autocast: None) -> None:
    """Two steps from one seed have the same bits."""
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        model = build_model(config(dropout=0.3)).train()
        src, tgt_in, src_mask, tgt_mask = batch()
        hidden = real_states(model, src, tgt_in, rows_of(src_mask), rows_of(tgt_mask))
        weight = model.get_parameter("output.weight")
        sequence_loss(hidden[None], weight, tgt_in[tgt_mask], 0.1).objective.backward()
        results.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(map(torch.equal, *results))
