"""Walks of the explorer through large networks: any layer and head, and one reading of the network for all of them."""

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_families import write_tiny

import headwise
from headwise.cli.commands.explore import contents
from headwise.errors import UserError
from headwise.serve.explorer.answers import ExplorerModel
from headwise.serve.explorer.requests import parse_request

LARGE = {"encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16, "decoder_attention_heads": 16}
Made = Callable[[str, dict[str, int]], ExplorerModel]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    def make(family: str, shape: dict[str, int]) -> ExplorerModel:
        folder = tmp_path_factory.mktemp(family)
        write_tiny(folder, family, shape)
        return ExplorerModel("a model", headwise.load(folder, "cpu"), contents())

    return make


def walked(model: ExplorerModel, text: str, **where: Any) -> dict[str, Any]:
    body = json.dumps({"text": text, "beam_size": 1, **where}).encode()
    return model.walked(parse_request(body))["walk"]


def values_of(walk: dict[str, Any], name: str) -> np.ndarray:
    (step,) = (one for one in walk["steps"] if walk["kinds"][one["kind"]]["id"] == name)
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(walk["numbers"]["data"])), "<f4")
    at, shape = step["values"]["at"], step["values"]["shape"]
    return numbers[at : at + int(np.prod(shape))].reshape(shape)


@pytest.mark.parametrize(
    ("family", "shape", "tokens", "layer", "head"), [("marian", LARGE, 100, 11, 15), ("t5", {"num_layers": 2}, 1, 1, 1)]
)
def test_every_layer_and_head_of_a_large_network_can_be_walked_through(
    made: Made, family: str, shape: dict[str, int], tokens: int, layer: int, head: int
) -> None:
    model, text = made(family, shape), "a" * tokens
    figure = model.described()["figure"]
    assert [(stack["layers"], stack["heads"][-1]) for stack in figure.values()] == [(layer + 1, head + 1)] * 2
    for stack, name in (("encoder", "self_attn.softmax"), ("decoder", "cross_attn.softmax")):
        walk = walked(model, text, stack=stack, layer=layer, head=head)
        assert walk["walks"][0] | {"steps": []} == {"stack": stack, "layer": layer, "head": head, "steps": []}
        weights = values_of(walk, name)
        assert weights.shape[1] > tokens
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    with pytest.raises(UserError, match=f"no layer {layer + 1}"):
        walked(model, text, stack="decoder", layer=layer + 1)


def test_the_network_reads_an_input_once_for_all_its_walks(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    model, read = made("marian", {}), []
    walks = model.model.walks
    monkeypatch.setattr(model.model, "walks", lambda text, **settings: read.append(text) or walks(text, **settings))
    first = walked(model, "ab", stack="decoder", layer=0, head=0)
    other = walked(model, "ab", stack="decoder", layer=1, head=1)
    assert read == ["ab"]
    assert not np.array_equal(values_of(first, "self_attn.queries"), values_of(other, "self_attn.queries"))
    silenced = {"decoder": {"1": [0, 1]}}
    masked = walked(model, "ab", stack="decoder", layer=1, head=1, masks=silenced)
    assert not values_of(masked, "self_attn.heads").any()
    walked(model, "abc", stack="decoder")
    again = walked(model, "ab", stack="decoder", layer=1, head=1)
    assert read == ["ab", "ab", "abc", "ab"]
    np.testing.assert_array_equal(values_of(again, "self_attn.queries"), values_of(other, "self_attn.queries"))
