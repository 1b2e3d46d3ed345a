"""Records as tables: what they contain, and that any text is safe in a notebook and in a terminal."""

import math
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from headwise.errors import UserError
from headwise.view.labels import width_of
from headwise.view.record import (
    Attribution,
    Axis,
    BeamNode,
    Candidate,
    Position,
    Trace,
    Walk,
    WalkStep,
    Word,
)
from headwise.view.tables import INK, RecordTable, Tabular, background

NASTY = ["</td><script>alert(1)</script>", "\"&'<b>", "a\nb\tc", "\x1b[31mred", "\u202eabc", "\ud800", "日本\u0301", ""]


class Cells(HTMLParser):
    """The tags of an HTML text, and the texts of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        if tag in ("th", "td"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def likely(piece: str, probability: float) -> Candidate:
    return Candidate(piece, math.log(probability))


def trace(piece: str = "▁Hund") -> Trace:
    layers = [[likely("▁Katze", 0.5)], [likely(piece, 0.75), likely("▁Tier", 0.25)]]
    beam = [
        BeamNode(-1, 0, "▁Ein", -0.1, -0.1, "chosen"),
        BeamNode(0, 1, piece, -0.3, -0.2, "chosen"),
        BeamNode(0, 1, "▁Tier", -1.0, -0.9, "finished"),
        BeamNode(-1, 0, "▁Der", -2.0, -2.0, "pruned"),
    ]
    return Trace([Position(piece, layers[1], layers, [1.0, 2.0])], beam)


def attribution(word: str = "dog") -> Attribution:
    src = Axis(["▁A", "▁dog"], [Word("A", 0, 1), Word(word, 1, 2)])
    tgt = Axis(["▁Hund"], [Word(word, 0, 1)])
    values = np.array([[-0.5, 2.0]], np.float32)
    return Attribution("A dog", "Hund", src, tgt, values, values, values[0, 1:], values[0, 1:])


def walk(token: str = "▁A", columns: int = 2) -> Walk:
    values = np.full((2, columns), 0.25, np.float32)
    values[0, 1] = -np.inf
    scores = WalkStep(
        "self_attn.scores", "self_attn", "scores", "Q K^T", "scores", ["q", "k"], [token, "b"], [], values
    )
    return Walk([scores, WalkStep("output", "output", "output", "x", "same", [], ["c"], ["d"], values[:1, :1])])


RECORDS: dict[str, Any] = {"trace": trace, "attribution": attribution, "walk": walk}


def test_a_trace_shows_candidates_layers_and_the_beam() -> None:
    first, second, third = trace().tables()
    assert first.rows == [["0 Hund", "Hund 75 %", "Tier 25 %"]]
    assert second.head == ["position and token", "layer 0", "layer 1"]
    assert second.rows == [["0 Hund", "Katze 50 %", "Hund 75 %"]]
    assert third.rows == [["Ein Hund", "-0.200", "-0.300", "chosen"], ["Ein Tier", "-0.900", "-1.000", "finished"]]
    assert third.caption == "Finished hypotheses of the beam (pruned: 1)"
    assert list(Trace([], []).tables()) == [] and str(Trace([], [])) == "" == Trace([], [])._repr_html_()


def test_an_attribution_is_a_tinted_table() -> None:
    (table,) = attribution().tables()
    assert table.head == ["word", "A", "dog"] and table.rows == [["dog", "-0.50", "+2.00"]]
    assert table.tints == [[-0.25, 1.0]]
    html = attribution()._repr_html_()
    assert background(1.0) in html and background(-0.25) in html
    empty = Attribution("", "", Axis(), Axis(), *[np.zeros((0, 0), np.float32)] * 2, *[np.zeros(0, np.float32)] * 2)
    assert "Contribution" in str(empty)


def test_a_walk_lists_its_steps_and_their_values() -> None:
    steps = walk()
    assert isinstance(steps, list) and len(steps) == 2 and steps.step("output") is steps[1]
    (table,) = steps.tables()
    assert table.rows[0] == ["self_attn.scores", "Scores", "Q K^T", "q, k", "2 by 2"]
    (values,) = steps[0].tables()
    assert values.head == ["token", "0", "1"] and values.rows == [["A", "0.25", "-inf"], ["b", "0.25", "0.25"]]
    assert steps._repr_html_().count("<details>") == 2
    with pytest.raises(UserError, match=r"'self_attn.score'.*'self_attn.scores'"):
        steps.step("self_attn.score")
    (wide,) = walk(columns=40)[0].tables()
    assert len(wide.head) == len(wide.rows[0]) == 14 and wide.head[-1] == "…" and "2 by 40" in wide.caption


@pytest.mark.parametrize("name", RECORDS)
def test_every_table_has_a_caption_and_headers(name: str) -> None:
    found = Cells(RECORDS[name]()._repr_html_())
    assert found.tags.count("caption") == found.tags.count("table") >= 1
    headers = [one for tag, one in zip(found.tags, found.attributes, strict=True) if tag == "th"]
    assert {one["scope"] for one in headers} == {"col", "row"}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("text", NASTY)
def test_any_text_is_safe(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # all in one part
    record = RECORDS[name](text)
    assert Cells(record._repr_html_()).tags == Cells(RECORDS[name]()._repr_html_()).tags
    record._repr_html_().encode()
    printed = str(record).encode().decode()
    assert not any(sign in printed for sign in "\x1b\t\u202e") and len(printed.split("\n")) == len(
        str(RECORDS[name]()).split("\n")
    )


def test_a_terminal_shows_the_text_form() -> None:
    class Printer:
        shown = ""

        def text(self, text: str) -> None:
            self.shown += text

    printer = Printer()
    for make in RECORDS.values():
        record: Tabular = make()
        printer.shown = ""
        record._repr_pretty_(printer, False)
        assert printer.shown == str(record) and all(table.caption in str(record) for table in record.tables())


def test_wide_tables_continue_below() -> None:
    table = RecordTable("Many", ["row", *(f"column {i}" for i in range(9))], [["日本", *"123456789"]])
    lines = table.text(40).split("\n")
    assert max(map(width_of, lines)) <= 40 and [line for line in lines if line.startswith("日本")] == lines[2::2]
    assert " ".join(lines[2::2]).replace("日本", "").split() == list("123456789")
    assert "column 0" in table.text(3)  # narrower than any column: one column a part


@pytest.mark.parametrize("tint", [-5.0, -1.0, -0.5, 0.0, 0.5, 1.0, 5.0])
def test_text_on_a_tint_has_contrast(tint: float) -> None:
    """At least 4.5:1, the formula of WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(background(tint)) + 0.05) / (luminance(INK) + 0.05) >= 4.5
