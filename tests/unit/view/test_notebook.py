"""What a notebook is given to show, without a browser; `tests/browser/test_page.py` opens it."""

import html
import json
import re
from typing import Any

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.evaluate.pages.document import asset
from headwise.view.notebook import AttentionView, Inspection, NotebookPage, views_of
from headwise.view.record import Axis, Patches, Position, Times, Trace, Word


def weights(n_layers: int, heads: int, rows: int, columns: int) -> list[Any]:
    return [np.full((heads, rows, columns), 1 / max(columns, 1), np.float32) for _ in range(n_layers)]


def record(src: Axis | None = None, tgt: Axis | None = None, **changes: Any) -> AttentionView:
    src = src or Axis(["▁A", "▁dog", "</s>"], [Word("A", 0, 1), Word("dog", 1, 2)])
    tgt = tgt or Axis(["▁Ein", "▁Hund"], [Word("Ein", 0, 1), Word("Hund", 1, 2)])
    m, n = len(src.labels), len(tgt.labels)
    stacks = {"encoder": weights(2, 4, m, m), "decoder": weights(2, 4, n, n), "cross": weights(2, 4, n, m)}
    return AttentionView("A dog", "Ein Hund", src, tgt, ["<s>", "▁Ein"], **{**stacks, **changes})


TRACE = Trace([Position("▁Ein", [], [], [])], [])
NOTHING: dict[str, Any] = {"decoder": [], "cross": []}


def opened(page: NotebookPage) -> dict[str, Any]:
    """The state that the page of a frame begins with."""
    frame = html.unescape(page._repr_html_())
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', frame, re.DOTALL)
    assert found
    return json.loads(found[1])["start"]


def test_it_opens_where_it_is_told() -> None:
    shown = record()
    assert opened(shown.show()) == {}
    assert opened(shown.show("matrix")) == {"view": "matrix", "part": "cross"}
    assert opened(shown.show("lines", "encoder", 1, 3)) == {"view": "lines", "part": "encoder", "layer": 1, "head": 3}
    assert opened(shown.show(layer=-1)) == {"view": "lines", "part": "cross", "layer": 1, "head": None}
    assert opened(shown.show("alignment", head=2)) == {"view": "alignment", "part": "cross", "layer": None, "head": 2}
    assert opened(shown.show("beam", trace=TRACE)) == {"view": "beam"}
    assert opened(Inspection(shown, TRACE).show("probabilities")) == {"view": "probabilities"}
    assert opened(shown.show("grid", part="decoder")) == {"view": "grid", "part": "decoder"}


def test_a_frame_has_its_height_and_a_text_form() -> None:
    page = record().show("matrix", layer=0, head=1, height=321)
    assert "height: 321px" in page._repr_html_() and "height: 640px" in record()._repr_html_()
    assert repr(page) == "<page: view matrix, part cross, layer 0, head 1; a notebook shows it>"
    assert repr(record().show()) == "<page; a notebook shows it>"


def test_the_views_of_a_record_are_those_of_the_page() -> None:
    """Names as `pane.js` has them, in its order; and the same conditions."""
    names = re.findall(r"^  (\w+): \{ choices: ", asset("pane.js"), re.MULTILINE)
    everything: set[str] = set()
    pixels = Patches(np.zeros((4, 4, 3), np.uint8), 2, 2, 1)
    picture = record(Axis(list("abcde"), of=pixels), Axis(), **NOTHING)
    sound = record(Axis(list("ab"), of=Times(0.1, np.zeros(2, np.float32))))
    text = record(tgt=Axis(), **NOTHING)
    for shown, trace, views in [
        (record(), None, "lines matrix grid alignment"),
        (record(), TRACE, "lines matrix grid alignment beam probabilities"),
        (picture, TRACE, "picture lines matrix grid probabilities"),
        (sound, None, "sound lines matrix grid"),
        (text, TRACE, "lines matrix grid probabilities"),
        (record(cross=[None, None]), None, "lines matrix grid"),
    ]:
        found = list(views_of(shown, trace))
        assert found == views.split() == [name for name in names if name in found]
        everything |= set(found)
    assert {*names} - everything == {"walk", "tour"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"view": "matrx"}, "unknown view of this record 'matrx'; did you mean 'matrix'? (valid: alignment, grid, "),
        ({"view": "beam"}, "unknown view of this record 'beam'"),
        ({"part": "crss"}, "unknown part for the view lines 'crss'; did you mean 'cross'? (valid: cross, "),
        ({"view": "alignment", "part": "encoder"}, "unknown part for the view alignment 'encoder' (valid: cross)"),
        ({"layer": 2}, "cross attention has no recorded layer 2; recorded: 0, 1"),
        ({"layer": -3}, "cross attention has no recorded layer -1; recorded: 0, 1"),
        ({"layer": 1, "head": 4}, "cross attention, layer 1, has no head 4; heads are 0 to 3"),
        ({"head": -1}, "cross attention has no head -1; heads are 0 to 3"),
        ({"height": 0}, "height = 0: must be at least 1 pixel"),
        ({"view": "beam", "trace": TRACE, "layer": 0}, "the view beam has no layers and heads"),
        ({"view": "beam", "trace": TRACE, "part": "cross"}, "the view beam has no parts"),
    ],
)  # fmt: skip
def test_errors_list_what_there_is(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        record().show(**arguments)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_layers_that_were_not_recorded_cannot_be_shown() -> None:
    shown = record(cross=[None, *weights(1, 4, 2, 3)])
    assert opened(shown.show(layer=1, part="cross"))["layer"] == 1
    with pytest.raises(UserError, match=r"no.*0.*1"):
        shown.show(layer=0, part="cross")
