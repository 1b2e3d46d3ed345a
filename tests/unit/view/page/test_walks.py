"""The walks of a page: nothing is lost on the way into JSON, and a selection is made where they would be too large."""

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headwise.pytorch.inspect.walk import walk_pair
from headwise.runtime.search.translator import TextTranslator
from headwise.view.page import walks
from headwise.view.page.walks import all_walks, one_walk
from headwise.view.record import StackFigure, WalkRecord, WalkStep

SRC, TGT = "A dog runs .", "Der Hund sieht ."


@pytest.fixture(scope="module")
def record(translator_of: Callable[[str], TextTranslator]) -> WalkRecord:
    return walk_pair(translator_of("post"), SRC, TGT)


def numbers_of(contents: dict[str, Any]) -> np.ndarray:
    """As the page reads them."""
    kind = {"float16": "<f2", "float32": "<f4"}[contents["numbers"]["type"]]
    return np.frombuffer(zlib.decompress(base64.b64decode(contents["numbers"]["data"])), kind)


def array_of(contents: dict[str, Any], array: dict[str, Any]) -> np.ndarray:
    size = int(np.prod(array["shape"]))
    return numbers_of(contents)[array["at"] : array["at"] + size].reshape(array["shape"])


def test_one_walk_is_exact_in_float32(record: WalkRecord) -> None:
    contents = json.loads(json.dumps(one_walk(record, "decoder", 1, 1)))
    expected = record.steps("decoder", 1, 1)
    (walk,) = contents["walks"]
    assert (walk["stack"], walk["layer"], walk["head"], len(walk["steps"])) == ("decoder", 1, 1, len(expected))
    for at, step in zip(walk["steps"], expected, strict=True):
        found = contents["steps"][at]
        kind = contents["kinds"][found["kind"]]
        for name in ("id", "place", "text", "formula", "operation", "operands", "settings"):
            assert kind[name] == getattr(step, name), step.id
        assert contents["axes"][kind["rows"]] == step.rows
        assert (contents["axes"][kind["columns"]] if kind["columns"] else []) == step.columns
        for name in ("values", "weight", "bias"):
            if getattr(step, name) is not None:
                np.testing.assert_array_equal(array_of(contents, found[name]), getattr(step, name))
        assert (found["predictions"] is None) == (step.id != "probabilities")
        for row, prediction in zip(found["predictions"] or [], step.predictions, strict=True):
            assert [name for name, _ in row["candidates"]] == [one.piece for one in prediction.candidates]
            assert [log for _, log in row["candidates"]] == pytest.approx([x.log_prob for x in prediction.candidates])
            assert row["totals"] == pytest.approx(prediction.totals)


def test_a_small_network_has_all_walks_with_weights_of_layer_0(record: WalkRecord) -> None:
    contents = all_walks(record)
    found = {(walk["stack"], walk["layer"], walk["head"]) for walk in contents["walks"]}
    assert found == {(stack, i, h) for stack, f in record.figure.items() for i in range(len(f.heads)) for h in (0, 1)}
    assert contents["note"] == ""
    for layer, has_weight in ((0, True), (1, False)):
        walk = next(
            one for one in contents["walks"] if (one["stack"], one["layer"], one["head"]) == ("encoder", layer, 1)
        )
        steps = {
            contents["kinds"][step["kind"]]["id"]: step for step in map(contents["steps"].__getitem__, walk["steps"])
        }
        assert (steps["self_attn.queries"]["weight"] is not None) is has_weight
        assert steps["self_attn.norm"]["weight"] is not None
        queries = {step.id: step for step in record.steps("encoder", layer, 1)}["self_attn.queries"]
        values = array_of(contents, steps["self_attn.queries"]["values"])
        np.testing.assert_allclose(values, queries.values, rtol=2**-10, atol=2**-14)  # float16


def test_what_walks_have_in_common_is_there_once(record: WalkRecord) -> None:
    contents = all_walks(record)
    ids = [contents["kinds"][step["kind"]]["id"] for step in contents["steps"]]
    layers, heads = 2 + 3, 2
    assert ids.count("embeddings") == 2
    assert ids.count("self_attn.heads") == layers
    assert ids.count("self_attn.scores") == layers * heads


@pytest.mark.parametrize(
    ("share", "layers", "heads", "note"),
    [
        (0.9, 2, 2, ""),
        (0.35, 1, 2, "layer-0"),
        (0.31, 1, 1, "head-0"),
        (0.01, 0, 0, "none"),
    ],
)
def test_a_selection_stays_below_the_limit(
    record: WalkRecord, monkeypatch: pytest.MonkeyPatch, share: float, layers: int, heads: int, note: str
) -> None:
    limit = share * len(numbers_of(all_walks(record))) * walks.CHARACTERS
    monkeypatch.setattr(walks, "LARGEST_PAGE", limit)
    contents = all_walks(record)
    predictions = [one["predictions"] for one in contents["steps"] if one["predictions"]]
    assert len(numbers_of(contents)) * walks.CHARACTERS + sum(map(len, map(json.dumps, predictions))) <= limit
    encoder = [walk for walk in contents["walks"] if walk["stack"] == "encoder"]
    assert ({walk["layer"] for walk in encoder}, {walk["head"] for walk in encoder}) == (
        set(range(layers)),
        set(range(heads)),
    )
    assert note == contents["note"]


def test_a_full_walk_has_every_layer_and_head_however_large(
    record: WalkRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_them = all_walks(record)["walks"]
    monkeypatch.setattr(walks, "LARGEST_PAGE", 0)
    contents = all_walks(record, full=True)
    assert [(one["stack"], one["layer"], one["head"]) for one in contents["walks"]] == [
        (one["stack"], one["layer"], one["head"]) for one in all_of_them
    ]
    assert contents["note"] == ""
    steps = {contents["kinds"][step["kind"]]["id"]: step for step in contents["steps"]}
    assert steps["self_attn.queries"]["weight"] is None


def test_large_values_stay_finite_and_masked_ones_do_not() -> None:
    values = np.array([[1e300, -1e300, -np.inf]])
    step = WalkStep("self_attn.scores", "self_attn", "scores", "x", "given", [], ["a"], ["a", "b", "c"], values, 0, 0)
    figure = {"decoder": StackFigure([1], ["self_attn"], "pre", "rotary", True, "states")}
    walk = WalkRecord(figure, lambda stack, layer, head: [step])
    contents = all_walks(walk)
    assert numbers_of(contents).tolist() == [65504.0, -65504.0, -np.inf]
    most = float(np.finfo(np.float32).max)
    assert numbers_of(one_walk(walk, "decoder", 0, 0)).tolist() == [most, -most, -np.inf]


def test_weights_that_are_too_many_are_left_out(record: WalkRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "LARGEST_WEIGHTS", 1000)
    contents = one_walk(record, "", 0, 0)
    steps = {contents["kinds"][step["kind"]]["id"]: step for step in contents["steps"]}
    assert steps["self_attn.queries"]["weight"] is None
    assert steps["self_attn.norm"]["weight"] is not None


def test_walks_go_through_the_heads_that_all_attentions_of_a_layer_have(
    translator_of: Callable[[str], TextTranslator],
) -> None:
    """A model whose cross-attention alone was pruned."""
    record = walk_pair(translator_of("pruned"), SRC, TGT)
    contents = json.loads(json.dumps(all_walks(record, full=True)))
    places = [(walk["stack"], walk["layer"], walk["head"]) for walk in contents["walks"]]
    assert places == [("encoder", 0, 0), ("encoder", 0, 1), ("decoder", 0, 0)]
    assert contents["figure"]["decoder"]["heads"] == [1]
