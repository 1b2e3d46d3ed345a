"""What the compiled library records for a walk: the values of `pytorch.inspect.walk` in torch, in every build and
precision.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_families import write_tiny
from unit.native.walking import Recorded

import headwise
from headwise.core.transformer import Transformer
from headwise.pytorch.inspect.walk import walk_record
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.runtime.native import library as c
from headwise.runtime.native.library import library, usable_builds
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.native.reading import read_pair_of_ids
from headwise.view.record import WalkStep

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

Build = Callable[..., Transformer]
SOURCE, TARGET = [7, 5, 10, 3, 8, 2], [1, 6, 6, 4, 9]
UNEVEN = {"n_encoder_layers": 1, "n_decoder_layers": 3}
VARIANTS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "norms first": {"norm_position": "pre"},
    "heads of 3 and 5, learned positions": {"d_k": 3, "d_v": 5, "positions": "learned", "max_len": 20},
    "heads of 12, rotary": {"d_k": 12, "d_v": 12, "positions": "rotary"},
    "shared keys": {"n_kv_heads": 1, "norm_position": "pre"},
    "SwiGLU": {"activation": "silu", "gated": True},
    "GELU": {"activation": "gelu", "d_ff": 21},
    "d_model 13, uneven stacks": {"d_model": 13, "n_heads": 1, "positions": "learned", "max_len": 20, **UNEVEN},
}
OUTSIDE = {"logits", "probabilities"}  # the page computes them from the output


class Pair:
    """The ids of a pair as an `InspectedInput`."""

    def __init__(self) -> None:
        self.read = self.written = list(map(str, TARGET))
        self.described: dict[str, Any] = {"src": type("Labels", (), {"labels": list(map(str, SOURCE))})}

    def names(self, ids: Any, /) -> list[str]:
        return list(map(str, ids))

    def read_by(self, network: Any) -> torch.Tensor:
        src = torch.tensor([SOURCE])
        mask = torch.ones_like(src, dtype=torch.bool)
        return network.decode(torch.tensor([TARGET]), network.encode(src, mask), mask)

    def as_shown(self, stack: str, weights: torch.Tensor) -> torch.Tensor:
        return weights


def packed(model: Transformer, compute: str = "float32") -> CompiledNetwork:
    network = prepare_for_inference(model, compute)
    assert isinstance(network, CompiledNetwork)
    return network


def recorded(model: Transformer, network: CompiledNetwork, stack: str, layer: int, head: int) -> dict[str, Any]:
    attention: Any = model.get_submodule(f"{stack}.layers.{layer}.self_attn")
    d_k = attention.q_proj.out_features // attention.n_heads
    d_v = attention.v_proj.out_features // attention.n_kv_heads
    return Recorded(network, SOURCE, TARGET, stack == "decoder", layer, head).steps(d_k, d_v)


def walks(model: Transformer) -> Iterator[tuple[str, int, int, list[WalkStep]]]:
    """All layers and heads in float64."""
    record = walk_record(deepcopy(model).double(), Pair())
    for stack, figure in record.figure.items():
        for layer, heads in enumerate(figure.heads):
            for head in range(heads):
                yield stack, layer, head, record.steps(stack, layer, head)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_every_step_equals_torch(build: Build, changes: dict[str, Any]) -> None:
    """In float32 the error of a value is as in `test_network.py`, relative to the largest one of its step."""
    model = build(**changes)
    network = packed(model)
    for stack, layer, head, steps in walks(model):
        check_steps(recorded(model, network, stack, layer, head), steps, f"{stack} {layer} {head}")


def check_steps(found: dict[str, Any], steps: list[WalkStep], walk: str) -> None:
    for step in steps:
        if step.id in OUTSIDE:
            continue
        visible = np.isfinite(step.values)
        where = f"{walk} {step.id}"
        np.testing.assert_array_equal(np.isfinite(found[step.id]), visible, where)
        bound = 2e-5 * max(1.0, np.abs(step.values[visible]).max())
        np.testing.assert_allclose(found[step.id][visible], step.values[visible], 0, bound, err_msg=where)


@pytest.mark.parametrize("changes", [{"model_type": "gpt2", "n_layer": 2}, {"model_type": "llama"}], ids=str)
def test_every_step_of_a_decoder_alone_equals_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_tiny(tmp_path, changes["model_type"], changes)
    model, text = headwise.load(tmp_path, "cpu"), "A dog runs."
    reader: Any = model.text_network()
    network, ids = reader.network, model.encode(text)
    record = model.walks(text)
    for layer, heads in enumerate(record.figure["decoder"].heads):
        for head in range(heads):
            found = Recorded(network, [], ids, True, layer, head).steps(8, 8)
            check_steps(found, record.steps("decoder", layer, head), f"{layer} {head}")


def test_recordings_have_the_same_bits_in_all_builds(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(d_model=20, n_heads=4, d_ff=33)
    found = []
    for name in usable_builds():
        monkeypatch.setattr(c, "library", lambda name=name: c.opened(name))
        for compute in ("float32", "int8"):
            found.append((compute, recorded(deepcopy(model), packed(deepcopy(model), compute), "decoder", 1, 2)))
    first = dict(reversed(found))
    for compute, steps in found:
        for name, values in steps.items():
            np.testing.assert_array_equal(values, first[compute][name], f"{compute} {name}")


def test_a_recording_changes_nothing(build: Build) -> None:
    """Output and attention have the same bits as without one: int8, all layers and heads."""
    model = build()
    network = packed(model, "int8")
    plain = read_pair_of_ids(network, SOURCE, TARGET, ["encoder", "decoder", "cross", "states"])
    for stack, layer, head, _ in walks(model):
        found = recorded(model, network, stack, layer, head)
        if stack == "decoder":
            np.testing.assert_array_equal(found["output"], plain.states[-1])
            np.testing.assert_array_equal(found["self_attn.softmax"], plain.decoder[layer][head])
            np.testing.assert_array_equal(found["cross_attn.softmax"], plain.cross[layer][head])
        else:
            np.testing.assert_array_equal(found["self_attn.softmax"], plain.encoder[layer][head])


def test_int8_is_near_float32(build: Build) -> None:
    """Weights and inputs are rounded to 1/127 of their largest value at most: a per cent of a product's terms.
    Embeddings are in bfloat16.

    Errors of the layers below add up, so only layer 0 is compared, and in the mean.
    """
    model = build(d_model=32, d_ff=64)
    exact, rounded = packed(model), packed(model, "int8")
    for stack in ("encoder", "decoder"):
        wanted, found = (recorded(model, network, stack, 0, 1) for network in (exact, rounded))
        np.testing.assert_array_equal(found["position-codes"], wanted["position-codes"])
        np.testing.assert_allclose(found["embeddings"], wanted["embeddings"], rtol=2**-8)
        for name in ("self_attn.queries", "self_attn.keys", "self_attn.values"):
            assert np.abs(found[name] - wanted[name]).mean() < 0.02 * np.abs(wanted[name]).max(), name
