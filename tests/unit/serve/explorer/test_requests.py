"""What the explorer accepts: whatever is not right is one clear line."""

import json
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.serve.explorer.requests import MAX_CHARACTERS, ExplorerRequest, parse_request


def test_what_is_left_out_is_as_on_an_empty_page() -> None:
    assert parse_request(b"{}") == ExplorerRequest(0, "", "", 4, {}, "", "", 0, 0)


def test_all_that_a_page_sends() -> None:
    masks = {"cross": {"2": [0, 3]}, "encoder": {}}
    given = {"model": 1, "text": "a", "prefix": "b", "beam_size": 2, "masks": masks, "page": "p"}
    walk = {"stack": "decoder", "layer": 3, "head": 1}
    expected = ExplorerRequest(1, "a", "b", 2, {"cross": {2: [0, 3]}, "encoder": {}}, "p", "decoder", 3, 1)
    assert parse_request(json.dumps(given | walk).encode()) == expected


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a JSON object"),
        ({"text": 3}, "text must be a string"),
        ({"text": "x" * (MAX_CHARACTERS + 1)}, "4,001 characters; at most 4,000"),
        ({"prefix": None}, "prefix must be a string"),
        ({"beam_size": 0}, "beam_size must be a whole number from 1 to 16"),
        ({"beam_size": 17}, "from 1 to 16"),
        ({"beam_size": 2.5}, "whole number"),
        ({"beam_size": True}, "whole number"),
        ({"model": -1}, "model must be"),
        ({"masks": []}, "masks must look like"),
        ({"masks": {"cross": {"a": [0]}}}, "masks must look like"),
        ({"masks": {"cross": {"0": 5}}}, "masks must look like"),
        ({"masks": {"crass": {}}}, "the stacks are"),
        ({"layer": 10**9}, "layer must be"),
    ],
)
def test_anything_else_is_refused(body: Any, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_request(body if isinstance(body, bytes) else json.dumps(body).encode())
