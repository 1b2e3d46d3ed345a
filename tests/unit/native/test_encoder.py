"""Encoders in the compiled library compute what torch computes, whatever else is in the batch and in every build."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from unit.native.encoders import BERT, CONFIGS, ROBERTA, arrays_of, random_encoder, small_encoder

from headwise.config import positions
from headwise.config.network import NetworkConfig
from headwise.core.extensions.relative import relative_buckets
from headwise.core.transformer import EncoderOnly
from headwise.runtime.checkpoint.compiled_encoder import compiled_encoder, supports_encoder
from headwise.runtime.checkpoint.shapes import parameter_shapes
from headwise.runtime.native import library as c
from headwise.runtime.native.linear import NUMBERS

pytestmark = pytest.mark.skipif(c.library() is None, reason="the compiled library is missing")
TEXTS = [[5, 6, 7, 8], [9], [*range(49, 0, -1)], [3, 1, 4, 1, 5]]  # 1 is RoBERTa's padding
TYPES = [[0, 0, 1, 1], [0], [0] * 25 + [1] * 24, [1] * 5]


@torch.inference_mode()
def by_torch(network: EncoderOnly, types: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """States and outputs of the head of each text."""
    states = [
        network.encode(torch.tensor([text]), None, None if types is None else torch.tensor([types[i]]))
        for i, text in enumerate(TEXTS)
    ]
    return [one[0].numpy() for one in states], [network.logits(one)[0].numpy() for one in states]


@pytest.mark.parametrize("name", CONFIGS)
def test_states_and_outputs_equal_torch(name: str) -> None:
    """The error is not more than four times that of torch in float32; both are compared with float64."""
    config, network = CONFIGS[name], random_encoder(CONFIGS[name])
    types = TYPES if config.encoder and config.encoder.n_types == 2 else None
    encoder = compiled_encoder(config, arrays_of(network), "float32")
    found = np.split(encoder.states(TEXTS, types), np.cumsum([len(text) for text in TEXTS])[:-1])
    (states, outputs), (exact, exact_outputs) = by_torch(network, types), by_torch(network.double(), types)
    assert error(found, exact) <= 4 * error(states, exact)
    if config.head != "none":
        first = 1 if config.head == "text_class" else None
        ours = [encoder.head(one[:first]).reshape(like.shape) for one, like in zip(found, outputs, strict=True)]
        assert error(ours, exact_outputs) <= 4 * error(outputs, exact_outputs)


def error(found: list[np.ndarray], exact: list[np.ndarray]) -> float:
    return max(float(np.abs(one - other).max()) for one, other in zip(found, exact, strict=True))


@pytest.mark.parametrize("numbers", ["int8", "bfloat16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_rounded_states_point_the_same_way(name: str, numbers: str) -> None:
    """Random parameters spread errors more than trained ones: cosines above 0.97."""
    config, network = CONFIGS[name], random_encoder(CONFIGS[name])
    found = compiled_encoder(config, arrays_of(network), numbers).states(TEXTS)
    exact = np.concatenate(by_torch(network, None)[0])
    cosines = (found * exact).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(exact, axis=1)
    assert cosines.min() > 0.97 and not np.array_equal(found, exact)


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("name", CONFIGS)
def test_states_are_bit_identical(name: str, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every build, and in any batch."""
    arrays, found = arrays_of(random_encoder(CONFIGS[name])), dict[str, np.ndarray]()
    for build in c.usable_builds():
        monkeypatch.setattr(c, "library", lambda build=build: c.opened(build))
        encoder = compiled_encoder(CONFIGS[name], arrays, numbers)
        found[build] = encoder.states(TEXTS)
        alone = np.concatenate([encoder.states([text]) for text in TEXTS])
        np.testing.assert_array_equal(found[build], alone)
        np.testing.assert_array_equal(encoder.states(TEXTS * 9)[-len(alone) :], alone)
    assert len({states.tobytes() for states in found.values()}) == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_shapes_of_parameters(name: str) -> None:
    config = CONFIGS[name]
    assert supports_encoder(config)
    own = {name: tuple(one.shape) for name, one in random_encoder(config).named_parameters()}
    assert parameter_shapes(config) == own


def test_layers_of_a_group_are_packed_once() -> None:
    config = CONFIGS["ALBERT"]
    structure = compiled_encoder(config, arrays_of(random_encoder(config)), "float32").structure
    assert structure.encoder[0].ffn.up == structure.encoder[2].ffn.up


@pytest.mark.parametrize(
    "changes",
    [
        {"n_layers": 0},
        {"windows": (4, 0, 0)},
        {"first_norm": False},
        {"disentangled": "c2p", "relative_buckets": 8},
        {"relative_buckets": 8, "heads": (3, 3, 3)},
        {"activation": "tanh"},
        {"position_offset": 0, "count_from": 1},
    ],
    ids=str,
)
def test_axes_of_what_the_library_lacks(changes: dict[str, Any]) -> None:
    assert not supports_encoder(NetworkConfig("none", 50, replace(BERT, **changes), head="none"))


def test_networks_that_are_not_encoders_of_tokens() -> None:
    assert not supports_encoder(NetworkConfig("none", 50, BERT, head="image_class", front="patches"))
    assert not supports_encoder(NetworkConfig("none", 50, BERT, BERT, head="none"))
    assert not supports_encoder(NetworkConfig("none", 50, replace(BERT, norm="rms"), head="masked"))


def test_relative_buckets_equal_those_of_torch() -> None:
    for buckets, most in ((32, 128), (8, 20), (64, 512)):
        distances = np.arange(-3000, 3001)
        wanted = relative_buckets(torch.from_numpy(distances), buckets, most, bidirectional=True)
        np.testing.assert_array_equal(positions.distance_buckets(distances, buckets, most), wanted)


def test_relative_positions_may_grow() -> None:
    """Without learned positions nothing limits a text, and tables grow with it."""
    config = NetworkConfig(
        "none", 50, replace(ROBERTA, positions="none", relative_buckets=32), head="none", tie_head=False
    )
    network = random_encoder(config)
    encoder = compiled_encoder(config, arrays_of(network), "float32")
    short = encoder.states([[5, 6, 7]])
    long = encoder.states([[5, 6, 7] * 100])
    np.testing.assert_array_equal(encoder.states([[5, 6, 7]]), short)
    with torch.inference_mode():
        np.testing.assert_allclose(long, network.encode(torch.tensor([[5, 6, 7] * 100]))[0], atol=1e-4)


def test_texts_may_be_read_in_threads() -> None:
    encoder = small_encoder("float32")
    wanted = [encoder.states([[i % 30, 5, 6]]) for i in range(60)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda i: encoder.states([[i % 30, 5, 6]]), range(60))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
