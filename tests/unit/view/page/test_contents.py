"""What the page is given: weights small and close, texts whole."""

import base64
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from headwise.view.alignment import AlignmentHead
from headwise.view.page.contents import encode_weights, page_contents, plain_contents
from headwise.view.record import AttentionRecord, Axis, BeamNode, Candidate, Position, Trace, Word

WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, 4)).astype(np.float32)  # heads, tgt, src
RECORD = AttentionRecord(
    text="a dog",
    translation="ein Hund",
    src=Axis(["▁a", "▁dog", "</s>"], [Word("a", 0, 1), Word("dog", 1, 2)]),
    tgt=Axis(["▁ein", "▁Hu", "nd", "</s>"], [Word("ein", 0, 1), Word("Hund", 1, 3)]),
    read=["<s>", "▁ein", "▁Hu", "nd"],
    encoder=[],
    decoder=[None],
    cross=[None, WEIGHTS],
)
TRACE = Trace(
    [Position("▁ein", [Candidate("▁ein", -0.123456789)], [[Candidate("▁der", -1.0)]], [1.0, 2.0])],
    [BeamNode(-1, 0, "▁ein", -0.1, -0.1, "chosen")],
)


def unpacked(packed: str) -> np.ndarray:
    """As the page reads it."""
    return (np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8) / 255.0) ** 2


@pytest.mark.parametrize("weight", [0.0, 1e-4, 0.001, 0.03, 0.5, 0.997, 1.0])
def test_a_byte_keeps_a_weight_within_half_a_step(weight: float) -> None:
    found = unpacked(encode_weights(np.full((1, 1, 1), weight, dtype=np.float32)))[0]
    assert abs(found - weight) <= np.sqrt(weight) / 255 + 1e-5


def test_layers_that_were_not_recorded_stay_empty() -> None:
    attention = page_contents(RECORD)["attention"]
    assert attention["encoder"] == []
    assert attention["decoder"] == [None]
    assert attention["cross"][0] is None
    assert attention["cross"][1]["shape"] == [2, 4, 3]
    np.testing.assert_allclose(unpacked(attention["cross"][1]["data"]), WEIGHTS.ravel(), atol=0.004)


def test_texts_pieces_and_words() -> None:
    contents = page_contents(RECORD, model="toy")
    assert (contents["model"], contents["text"], contents["translation"]) == ("toy", "a dog", "ein Hund")
    assert contents["tgt"] == {"pieces": ["▁ein", "▁Hu", "nd", "</s>"], "words": [["ein", 0, 1], ["Hund", 1, 3]]}
    assert (contents["positions"], contents["beam"]) == ([], [])


def test_it_opens_on_the_head_that_is_known_to_align_else_on_the_clearest() -> None:
    clear = np.array([[[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]], dtype=np.float32)
    record = replace(RECORD, cross=[WEIGHTS, clear])
    assert page_contents(record)["aligns"] == {"layer": 1, "head": 0, "row": "predicts"}
    for head, row in ((1, "predicts"), (None, "reads")):
        known = AlignmentHead(0, head, row)
        assert page_contents(record, aligns=known)["aligns"] == {"layer": 0, "head": head, "row": row}
    assert page_contents(replace(RECORD, cross=[None]))["aligns"] == {"layer": None, "head": None, "row": None}


def test_a_head_that_looks_at_the_piece_just_read_is_known_as_such() -> None:
    late = np.array([[[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 0]]], dtype=np.float32)
    in_time = np.array([[[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]]], dtype=np.float32)
    record = replace(RECORD, cross=[late, in_time, None])
    assert page_contents(record)["aligns"] == {"layer": 0, "head": 0, "row": "reads"}


def test_whether_a_trace_was_recorded_is_known_to_the_page() -> None:
    assert page_contents(RECORD)["about"] == {"reads": "pieces", "writes": True, "traced": False, "walk": False}
    assert page_contents(RECORD, Trace(TRACE.positions, []))["about"]["traced"]  # of a translation that was given


def test_a_trace_is_plain_data_of_five_digits() -> None:
    contents = page_contents(RECORD, TRACE)
    assert contents["positions"][0]["candidates"] == [{"piece": "▁ein", "log_prob": -0.12346}]
    assert contents["beam"][0]["status"] == "chosen"
    assert json.loads(json.dumps(contents)) == contents


def test_json_for_other_programs_has_numbers_in_it() -> None:
    found = plain_contents(RECORD)["attention"]["cross"][1]
    np.testing.assert_allclose(found, WEIGHTS, atol=1e-6)


def test_a_long_sentence_is_a_small_part_of_its_numbers() -> None:
    sharp = np.random.default_rng(0).dirichlet(np.full(200, 0.02), size=(8, 200)).astype(np.float32)
    assert len(encode_weights(sharp)) < sharp.nbytes / 10
