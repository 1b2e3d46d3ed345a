"""The walk: what each stop shows is what the next one is given, and all of it is what the model did."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch_readers import attend_with_torch

from headwise.decode.stepwise import evaluating
from headwise.decode.translator import TextTranslator
from headwise.errors import UserError
from headwise.inspect.walk import WalkStep, walk_steps

SRC, TGT = "A dog runs .", "Der Hund sieht ."
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def by_name(stops: list[WalkStep], place: str) -> dict[str, np.ndarray]:
    return {stop.name: stop.values for stop in stops if stop.place == place}


def linear(x: np.ndarray, module: torch.nn.Module) -> np.ndarray:
    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


@pytest.fixture(params=["post", "pre"])
def translator(request: pytest.FixtureRequest, translator_of: Callable[[str], TextTranslator]) -> TextTranslator:
    return translator_of(request.param)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("layer", [0, 1])
def test_each_stop_is_the_next_ones_input(translator: TextTranslator, stack: str, layer: int) -> None:
    network, head = translator.model, 1
    stops = walk_steps(translator, SRC, TGT, stack, layer, head)
    module = getattr(network, stack).layers[layer]
    start = by_name(stops, "embedding") | by_name(stops, "positions")
    np.testing.assert_allclose(start["Embeddings"] + start["Positional encoding"], start["Embedded tokens"], **CLOSE)
    x = start[f"Input of layer {layer}"] if layer else start["Embedded tokens"]
    memory = by_name(walk_steps(translator, SRC, TGT, "encoder", 0, head), "output")["Output of the encoder"]
    with evaluating(network):
        for place in ["self_attn", *(["cross_attn"] if stack == "decoder" else [])]:
            x = follow_attention(by_name(stops, place), getattr(module, place), x, memory, place, module, head)
        found, sublayer = by_name(stops, "ffn"), module.ffn_sublayer
        given = found["Norm"] if sublayer.norm_first else x
        inside = np.maximum(linear(given, module.ffn.up_proj), 0)
        np.testing.assert_allclose(found["Feed-forward, inside"], inside, **CLOSE)
        outside = linear(found["Feed-forward, inside"], module.ffn.down_proj)
        np.testing.assert_allclose(found["Feed-forward, outside"], outside, **CLOSE)
        check_sum(found, sublayer, x, outside)


def follow_attention(found, attention, x, memory, place, module, head):
    sublayer = getattr(module, f"{place}_sublayer")
    given = found["Norm"] if sublayer.norm_first else x
    if sublayer.norm_first:
        np.testing.assert_allclose(found["Norm"], linear(x, sublayer.norm), **CLOSE)
    keys = memory if place == "cross_attn" else given
    d_k = found["Queries"].shape[1]
    share = slice(head * d_k, (head + 1) * d_k)
    np.testing.assert_allclose(found["Queries"], linear(given, attention.q_proj)[:, share], **CLOSE)
    np.testing.assert_allclose(found["Keys"], linear(keys, attention.k_proj)[:, share], **CLOSE)
    np.testing.assert_allclose(found["Values"], linear(keys, attention.v_proj)[:, share], **CLOSE)
    seen = np.isfinite(found["Scores"])
    scores = found["Queries"] @ found["Keys"].T / sqrt(d_k)
    np.testing.assert_allclose(found["Scores"][seen], scores[seen], **CLOSE)
    np.testing.assert_allclose(found["Softmax"], F.softmax(torch.from_numpy(found["Scores"]), -1).numpy(), **CLOSE)
    np.testing.assert_allclose(found["Weighted sum"], found["Softmax"] @ found["Values"], **CLOSE)
    check_sum(found, sublayer, x, found["All heads together"])
    return found["Add" if sublayer.norm_first else "Add & Norm"]


def check_sum(found, sublayer, x, added) -> None:
    both = x + added
    after = both if sublayer.norm_first else linear(both, sublayer.norm)
    np.testing.assert_allclose(found["Add" if sublayer.norm_first else "Add & Norm"], after, **CLOSE)


def test_heads_together_are_the_weighted_sums_of_all_heads(translator: TextTranslator) -> None:
    walks = [by_name(walk_steps(translator, SRC, TGT, "decoder", 1, head), "cross_attn") for head in range(2)]
    joined = np.concatenate([found["Weighted sum"] for found in walks], axis=1)
    projected = linear(joined, translator.model.decoder.layers[1].cross_attn.o_proj)
    np.testing.assert_allclose(walks[0]["All heads together"], projected, **CLOSE)


def test_softmax_is_what_attend_records(translator: TextTranslator) -> None:
    record = attend_with_torch(translator, SRC, TGT)
    for stack, place, layers in (
        ("encoder", "self_attn", record.encoder),
        ("decoder", "self_attn", record.decoder),
        ("decoder", "cross_attn", record.cross),
    ):
        found = by_name(walk_steps(translator, SRC, TGT, stack, 1, 0), place)["Softmax"]
        weights = layers[1]
        assert weights is not None
        np.testing.assert_allclose(found, weights[0], **CLOSE)


def test_output_probabilities_are_the_models(translator: TextTranslator) -> None:
    stops = walk_steps(translator, SRC, TGT, "decoder", 0, 0)
    last, hidden = stops[-1], torch.from_numpy(stops[-2].values)
    assert (last.name, stops[-2].name) == ("Output probabilities", "Output of the decoder")
    with torch.no_grad():
        likeliest = translator.model.logits(hidden).softmax(-1).max(-1).values
    np.testing.assert_allclose(last.values.max(1), likeliest.numpy(), **CLOSE)


def test_rows_and_columns_have_names(translator: TextTranslator) -> None:
    for stop in walk_steps(translator, SRC, TGT, "decoder", 0, 0):
        assert len(stop.rows) == stop.values.shape[0], stop.name
        assert not stop.columns or len(stop.columns) == stop.values.shape[1], stop.name


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (("encoder", 9, 0), "no layer 9: they go from 0 to 1"),
        (("decoder", 0, 2), "no head 2: they go from 0 to 1"),
        (("middle", 0, 0), "neither encoder nor decoder"),
    ],
)
def test_places_that_are_not_there(translator: TextTranslator, place: tuple[str, int, int], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        walk_steps(translator, SRC, TGT, *place)


def test_only_transformers_are_walked_through(translator_of: Callable[[str], TextTranslator]) -> None:
    with pytest.raises(UserError, match="another architecture"):
        walk_steps(translator_of("bahdanau"), SRC, TGT)
