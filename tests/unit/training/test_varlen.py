"""Packed training on CUDA: torch's `varlen_attn`, here replaced by equation 1 on a CPU."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.attention import varlen
from trainable_encoder import trainable_encoder

from headwise.config.model import TransformerConfig
from headwise.config.network import RotaryConfig
from headwise.config.training import TrainConfig
from headwise.core.attention import scaled_dot_product_attention
from headwise.core.batches import collate
from headwise.core.build import build
from headwise.core.train import Objective
from headwise.pytorch.architectures.transformer import transformer_config
from headwise.pytorch.data.labelled import LabelledBatch
from headwise.pytorch.data.tagged import IGNORED
from headwise.pytorch.tasks.classification import classification_objective
from headwise.pytorch.training import packed
from headwise.pytorch.training.packed import WIDEST, has_varlen, runs_varlen
from headwise.pytorch.training.step import translation_objective

SIGNATURE = inspect.signature(varlen.varlen_attn)
TRAIN = TrainConfig(label_smoothing=0.1)
SHAPE = TransformerConfig(
    vocab_size=20, d_model=32, d_ff=40, n_heads=2, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0
)
PAIRS = [([5, 6, 7, 3, 4, 5, 6], [8]), ([9], [4, 5, 6, 7, 8]), ([11, 12], [13, 14])]
BATCH = collate(PAIRS, pad_id=0, bos_id=1, eos_id=2)
IDS = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
TEXTS = LabelledBatch(IDS, IDS != 0, IDS.masked_fill(IDS == 0, IGNORED), n_real=8)  # of token classes
CLOSE = {"rtol": 1e-10, "atol": 1e-10}  # rounding of float64 in sums of other orders


def equation_1(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int, **how: Any
) -> Tensor:
    """`varlen_attn`, one sequence after the other."""
    SIGNATURE.bind(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **how)
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert int(cu_seq_q.diff().max()) <= max_q and int(cu_seq_k.diff().max()) <= max_k
    outputs = []
    (a, *queries), (c, *keys) = cu_seq_q.tolist(), cu_seq_k.tolist()
    for b, d in zip(queries, keys, strict=True):
        own = (x.transpose(0, 1)[None] for x in (query[a:b], key[c:d], value[c:d]))
        mask = torch.ones(b - a, d - c, dtype=torch.bool)
        mask = {(-1, -1): mask, (-1, 0): mask.tril()}[how["window_size"]]
        outputs.append(scaled_dot_product_attention(*own, mask[None, None])[0][0].transpose(0, 1))
        a, c = b, d
    return torch.cat(outputs)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """As if this were a CUDA device; the shapes of the queries of each call."""
    found: list[tuple[int, ...]] = []

    def noted(query: Tensor, *others: Any, **named: Any) -> Tensor:
        found.append(tuple(query.shape))
        return equation_1(query, *others, **named)

    monkeypatch.setattr(varlen, "varlen_attn", noted)
    monkeypatch.setattr("headwise.pytorch.training.packed.runs_varlen", lambda *_: True)
    return found


def loss_and_gradients(network: nn.Module, objective: Objective, batch: Any) -> list[Tensor]:
    network.zero_grad()
    loss = objective(batch)
    loss.objective.backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    return [loss.objective.detach(), *loss.figures.values(), *gradients]


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_position": "pre", "positions": "learned", "max_len": 12},
        {"positions": "none", "rotary": RotaryConfig(16)},
        {"rotary": RotaryConfig(8), "normalise_heads": True, "norm": "rms"},
    ],
    ids=str,
)
def test_loss_and_gradients_of_translation(
    changes: dict[str, Any], r_drop: float, calls: list[tuple[int, ...]]
) -> None:
    plain = transformer_config(SHAPE)
    encoder, decoder = (replace(stack, **changes) for stack in (plain.encoder, plain.decoder) if stack)
    network: Any = build(replace(plain, encoder=encoder, decoder=decoder)).double()
    train, passes = replace(TRAIN, r_drop=r_drop), 2 if r_drop else 1
    found = loss_and_gradients(network, translation_objective(network, 0, train), BATCH)
    sources, targets = BATCH.n_source_tokens * passes, BATCH.n_target_tokens * passes
    assert calls == 2 * [(sources, 2, 16)] + 4 * [(targets, 2, 16)]
    padded = loss_and_gradients(network, translation_objective(network, 0, train, padded=True), BATCH)
    torch.testing.assert_close(found, padded, **CLOSE)


@pytest.mark.parametrize("drops", [False, True])
def test_loss_and_gradients_of_encoders(
    tmp_path: Path, drops: bool, calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention with dropout on weights is padded by itself."""
    network = trainable_encoder(tmp_path, drops).double()
    found = loss_and_gradients(network, classification_objective(network, TRAIN), TEXTS)
    assert {shape[0] for shape in calls} == (set() if drops else {TEXTS.n_real})
    monkeypatch.setattr("headwise.pytorch.training.packed.attention_for_encoder", lambda *_: None)
    padded = loss_and_gradients(network, classification_objective(network, TRAIN), TEXTS)
    torch.testing.assert_close(found, padded, **CLOSE)


@pytest.mark.parametrize("drops", [False, True])
def test_an_encoder_asks_nothing_of_the_device(tmp_path: Path, drops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have shapes and no values, so they raise an error where a GPU would be waited for."""
    monkeypatch.setattr("headwise.pytorch.training.packed.runs_varlen", lambda *_: True)
    network, called, attend = trainable_encoder(tmp_path, drops).double(), list[object](), packed.attend_by_varlen
    monkeypatch.setattr(packed, "attend_by_varlen", lambda *given: called.append(given) or attend(*given))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        batch = TEXTS._map(mode.from_tensor)
        classification_objective(network, TRAIN)(batch).objective.backward()
        with pytest.raises(DataDependentOutputException):
            batch.src_mask.sum().item()
    assert len(called) == len(network.encoder.layers)


CUDA = torch.device("cuda")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What `runs_varlen` asks, answered as by a GPU with bfloat16."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.bfloat16)
    monkeypatch.setattr("torch.backends.cuda.is_flash_attention_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (8, 0))
    monkeypatch.setenv("HEADWISE_PACK", "1")
    has_varlen.cache_clear()
    yield monkeypatch
    has_varlen.cache_clear()


def older(query: Tensor, key: Tensor, value: Tensor, *others: Any, is_causal: bool = False) -> Tensor:
    """With arguments of torch 2.10."""
    raise NotImplementedError


UNSUPPORTED: dict[str, tuple[str, object]] = {
    "no autocast": ("torch.is_autocast_enabled", lambda _: False),
    "float16": ("torch.get_autocast_dtype", lambda _: torch.float16),
    "an old GPU": ("torch.cuda.get_device_capability", lambda _: (7, 5)),
    "AMD": ("torch.version.hip", "6.4"),
    "built without FlashAttention": ("torch.backends.cuda.is_flash_attention_available", lambda: False),
    "torch 2.10": ("torch.nn.attention.varlen.varlen_attn", older),
}


def test_where_it_runs(cuda: pytest.MonkeyPatch) -> None:
    assert [runs_varlen(CUDA, (width, width)) for width in (8, 64, 68, WIDEST, WIDEST + 8)] == [1, 1, 0, 1, 0]
    assert not runs_varlen(CUDA, (64, 32))
    assert not runs_varlen(torch.device("cpu"), (64, 64))


@pytest.mark.parametrize("why", UNSUPPORTED)
def test_where_it_does_not_run(cuda: pytest.MonkeyPatch, why: str) -> None:
    cuda.setattr(*UNSUPPORTED[why])
    assert not runs_varlen(CUDA, (64, 64))


def test_it_is_off_unless_it_is_switched_on(cuda: pytest.MonkeyPatch) -> None:
    cuda.delenv("HEADWISE_PACK")
    assert not runs_varlen(CUDA, (64, 64))


def test_torch_without_it(cuda: pytest.MonkeyPatch) -> None:
    cuda.delattr(varlen, "varlen_attn")
    assert not runs_varlen(CUDA, (64, 64))


def test_the_rest_is_padded(calls: list[tuple[int, ...]]) -> None:
    """Another scale, grouped heads: what the compiled library does not support either."""
    plain = transformer_config(SHAPE)
    for changes in ({"score_scale": 1.0}, {"n_kv_heads": 1}):
        stacks = [replace(stack, **changes) for stack in (plain.encoder, plain.decoder) if stack]
        network = build(replace(plain, encoder=stacks[0], decoder=stacks[1]))
        translation_objective(network, 0, TRAIN)(BATCH)
    assert not calls
