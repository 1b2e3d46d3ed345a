"""The guided tour: every card, its prediction, and every number on it, which torch computes again."""

import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from browser.axe import violations
from browser.conftest import SHAPES, write_model
from browser.tour_numbers import Expected, Numbers
from browser.walked import page_writer
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import headwise
from headwise.cli.commands.explore import contents
from headwise.evaluate.pages.document import catalogues, inspection_page, script_text
from headwise.models.load import translation_folder
from headwise.serve.explorer.answers import ExplorerModel
from headwise.serve.explorer.server import ExplorerServer
from headwise.serve.web.page import export_page
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.page.contents import page_contents
from headwise.view.record import WalkRecord

TEXT = "A dog runs across the field ."
TEXTS: dict[str, Any] = json.loads(catalogues("tour"))
CARDS = [
    *("recurrence", "alignment", "tokens", "embeddings", "positions", "by-hand", "scores", "scale", "softmax"),
    *("weighted-sum", "heads", "concat", "residual", "norm", "feed-forward", "memory", "mask", "cross", "logits"),
    *("greedy", "beam", "temperature", "loss", "warm-up", "families", "pictures"),
]
KNOBS = {
    "recurrence": ("1", "2", "4"), "positions": ("", "off"), "scale": ("", "off"), "weighted-sum": ("", "even"),
    "concat": ("", "0", "1"), "residual": ("", "off"), "mask": ("", "off"), "beam": ("1", "2", "4", "8"),
    "temperature": ("0.5", "1", "2"), "warm-up": ("1000", "4000", "16000"), "pictures": ("8", "16", "32"),
}  # fmt: skip
LINKS = [("scale", "off", 3), ("concat", "1", 2), ("mask", "off", 2), ("temperature", "0.5", 2), ("warm-up", "1000", 1)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, model_paths: dict[str, Path]) -> Path:
    """A model whose attention is neither even nor on one token."""
    tokenizer = Tokenizer.load(model_paths["transformer"] / "tokenizer.json")
    return write_model(tmp_path_factory.mktemp("tour") / "model", SHAPES["transformer"], tokenizer, {}, gain=0.75)


@pytest.fixture(scope="module")
def address(path: Path) -> Iterator[str]:
    """An explorer of the model."""
    with ExplorerServer([ExplorerModel("a model", headwise.load(path, "cpu"), contents())], port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.url
        server.shutdown()


@pytest.fixture(scope="module")
def expected(path: Path) -> Expected:
    model = headwise.load(path, "cpu")
    aligns = page_contents(model.attend(TEXT, beam_size=4))["aligns"]
    layer, head = aligns["layer"], aligns["head"]
    return Expected(model, TEXT, 4, (2 if layer is None else layer, head or 0))


@pytest.fixture
def toured(new_page: Callable[..., Any], address: str) -> Callable[..., Any]:
    """Opens a card in the explorer."""

    def open_page(hash: str = "", **options: Any) -> Any:
        shown = new_page(allowed=address, **options)
        shown.goto(f"{address}#view=tour&text={quote(TEXT)}&{hash}")
        expect(shown.locator(".card h2")).not_to_be_empty()
        return shown

    return open_page


def answered(shown: Any, card: str) -> Numbers:
    """The numbers of a card once a prediction was made."""
    body = shown.locator(f'.card[data-card="{card}"]')
    expect(body.locator(".verdict")).to_have_count(0)
    body.locator(".tour-choices button").first.click()
    expect(body.locator(".verdict")).not_to_be_empty()
    return numbers_of(body)


def numbers_of(body: Any) -> Numbers:
    return {name: pytest.approx(value, rel=2e-4, abs=2e-5) for name, value in exact_numbers(body).items()}


def exact_numbers(body: Any) -> Numbers:
    return dict(body.locator("data").evaluate_all("(nodes) => nodes.map((node) => [node.dataset.name, +node.value])"))


def choices(shown: Any) -> list[str]:
    return shown.locator(".card .tour-choices .right").all_inner_texts()


def test_the_tour_goes_from_the_first_card_to_the_last(toured: Callable[..., Any], expected: Expected) -> None:
    shown = toured()
    assert shown.get_by_role("combobox", name="Cards").locator("option").count() == len(CARDS)
    for card in CARDS:
        assert answered(shown, card) == expected.card(card), card
        assert len(choices(shown)) == 1, card
        assert f"card={card}" in shown.evaluate("location.hash") or card == CARDS[0]
        if card != CARDS[-1]:
            shown.get_by_role("button", name="Next →").click()
    expect(shown.get_by_role("button", name="Next →")).to_be_disabled()


@pytest.mark.parametrize(("card", "knob", "row"), LINKS, ids=[card for card, *_ in LINKS])
def test_an_address_leads_to_a_card_with_its_setting(
    toured: Callable[..., Any], expected: Expected, card: str, knob: str, row: int
) -> None:
    shown = toured(f"card={card}&knob={knob}&cell={row},0")
    assert answered(shown, card) == expected.card(card, knob, row)
    assert expected.card(card, knob, row) != expected.card(card, "", row)


def test_the_right_answer_is_that_of_the_numbers(toured: Callable[..., Any], expected: Expected) -> None:
    shown = toured("card=heads")
    heads = answered(shown, "heads")
    assert choices(shown) == [str(expected.card("heads")["distinct"])] and heads["heads"] == 2
    right = shown.locator(".card .tour-choices .right")
    right.click()
    expect(shown.locator(".verdict")).to_have_text("Right.")


def question_of(shown: Any) -> tuple[str, list[str], list[str]]:
    """The question with its choices, and the right ones, of which each is found by its own text."""
    texts = shown.locator(".card .tour-choices button").all_inner_texts()
    assert len(set(texts)) == len(texts) > 1, texts
    return shown.locator(".card .question").inner_text(), texts, choices(shown)


def as_answer(text: str, options: list[str]) -> str | float:
    """What `Expected.answers` has for the text of a choice."""
    plain = text.replace(",", "").replace("\u2212", "-")
    if text in options:
        return options.index(text)
    return float(plain) if re.fullmatch(r"-?\d+(\.\d+)?", plain) else text


@pytest.mark.parametrize("card", CARDS)
def test_a_setting_changes_neither_question_nor_answer(
    toured: Callable[..., Any], expected: Expected, card: str
) -> None:
    """All cards with all settings: the answer is that of the model as it is, the numbers are those of the setting."""
    shown = toured(f"card={card}")
    numbers = answered(shown, card)
    question, texts, right = question_of(shown)
    options = (
        texts
        if card in ("positions", "scale", "weighted-sum", "residual", "feed-forward", "beam", "temperature")
        else []
    )
    found = {as_answer(text, options) for text in right}
    answers = expected.answers(card)
    if all(isinstance(one, str) for one in found):
        assert found == answers
    else:
        assert list(found) == pytest.approx(list(answers), abs=1e-3)
    verdict = shown.locator(".verdict").inner_text()
    buttons = shown.locator(".choice-buttons button")
    assert buttons.count() == len(KNOBS.get(card, ()))
    usual = shown.locator('.choice-buttons [aria-pressed="true"]').all_inner_texts()
    assert shown.locator(".turned").count() == 0
    for at, knob in enumerate(KNOBS.get(card, ())):
        buttons.nth(at).click()
        expect(buttons.nth(at)).to_have_attribute("aria-pressed", "true")
        assert question_of(shown) == (question, texts, right), knob
        assert shown.locator(".verdict").inner_text() == verdict, knob
        assert numbers_of(shown.locator(".card")) == expected.card(card, knob), knob
        turned = [buttons.nth(at).inner_text()] != usual
        assert shown.locator(".turned").count() == turned
        if turned:
            expect(shown.locator(".turned")).to_contain_text(usual[0])
    assert numbers == expected.card(card)


def test_another_token_is_another_question(toured: Callable[..., Any], expected: Expected) -> None:
    shown = toured("card=scores")
    answered(shown, "scores")
    token = shown.get_by_role("combobox", name="Token")
    token.focus()
    token.select_option("3")
    expect(shown.locator(".question")).to_contain_text("across")
    expect(shown.locator(".verdict")).to_have_count(0)
    assert shown.evaluate("document.activeElement.tagName") == "SELECT"
    assert "cell=3" in shown.evaluate("location.hash")
    assert answered(shown, "scores") == expected.card("scores", "", 3)
    assert set(choices(shown)) == expected.answers("scores", 3)
    token.select_option(str(expected.row("scores")))  # which was asked before
    expect(shown.locator(".verdict")).not_to_be_empty()
    shown.get_by_role("button", name="Next →").click()
    expect(shown.locator(".verdict")).to_have_count(0)


def test_what_the_prediction_needs_is_there_before_it(toured: Callable[..., Any], expected: Expected) -> None:
    shown = toured("card=by-hand")
    given, wanted = exact_numbers(shown.locator(".card")), expected.card("by-hand")
    assert numbers_of(shown.locator(".card")) == {
        name: value for name, value in wanted.items() if name.startswith(("given", "q0", "q1", "tokens", "two", "d_k"))
    }
    keys = [[given[f"given.{row}.{column}"] for column in (0, 1)] for row in range(4)]
    products = [sum(a * b for a, b in zip(keys[0], key, strict=True)) for key in keys[1:]]
    assert max(products) == pytest.approx(wanted["product"], rel=1e-4)
    for card, drawings in {
        "positions": 2, "scores": 2, "weighted-sum": 2, "heads": 1, "residual": 2, "feed-forward": 1
    }.items():  # fmt: skip
        shown.get_by_role("combobox", name="Cards").select_option(card)
        expect(shown.locator(f'.card[data-card="{card}"] .drawings canvas')).to_have_count(drawings)
        answered(shown, card)
        assert shown.locator(".drawings canvas").count() > drawings


WRONG = re.compile(r"undefined|NaN|null|\[object|\{\w+\}|\.\.(?!\.)")
SPECIAL = re.compile(r"\d+: (?![^<]*$)|\d+: [^\w]+$")


def sound_cards(shown: Any, cards: list[str], fewest: dict[str, int]) -> None:
    """All cards, for all tokens: the answers differ, and one of them is right; or there is nothing to predict."""
    for card in cards:
        shown.get_by_role("combobox", name="Cards").select_option(card)
        body = shown.locator(f'.card[data-card="{card}"]')
        expect(body.locator("h2")).not_to_be_empty()
        tokens = body.locator("select").all()
        names = tokens[0].locator("option").all_inner_texts() if tokens else [""]
        if tokens and any(re.search(r"\w", name.split(": ")[1]) and "<" not in name for name in names):
            assert not SPECIAL.fullmatch(tokens[0].locator("option:checked").inner_text()), card
        assert len(set(names)) == len(names)
        for row, name in enumerate(names):
            if tokens:
                body.locator("select").select_option(str(row))
                expect(body.locator("select")).to_have_value(str(row))
                expect(body.locator(".question, .empty")).to_have_count(1)
            if body.locator(".empty").count():
                assert len(names) == 1 or row == 0, (card, name)
                assert not body.locator("button").count()
                continue
            if not body.locator(".verdict").count():
                answered(shown, card)
            _, texts, right = question_of(shown)
            assert 1 <= len(right) <= len(texts) >= fewest.get(card, 2), (card, name)
            assert not (found := WRONG.search(" ".join(body.locator("p").all_inner_texts()))), (card, name, found)


@pytest.mark.parametrize("text", [TEXT, "a a . a", "<2de> Hund 2 2 .", "A"])
def test_every_question_has_different_answers(toured: Callable[..., Any], text: str) -> None:
    sound_cards(toured(f"text={quote(text)}"), CARDS, {"cross": 3})


class Page:
    """A static page with the walks of a model, some of whose steps are changed."""

    def __init__(self, new_page: Callable[..., Any], model: Any, folder: Path) -> None:
        self.new_page, self.model, self.file = new_page, model, folder / "page.html"

    def open(self, text: str, hash: str, change: Callable[[Any], Any] = lambda step: step) -> Any:
        record, trace = self.model.look_inside(text)
        walks = self.model.walks(text)
        changed = WalkRecord(walks.figure, lambda *place: [change(step) for step in walks.steps(*place)])
        contents = page_contents(record, trace, "a model", walks=changed)
        self.file.write_text(inspection_page([contents]), encoding="utf-8")
        shown = self.new_page()
        shown.goto(f"{self.file.as_uri()}#view=tour&{hash}")
        expect(shown.locator(".card h2")).not_to_be_empty()
        return shown


@pytest.fixture
def page(new_page: Callable[..., Any], path: Path, tmp_path: Path) -> Page:
    return Page(new_page, headwise.load(path, "cpu"), tmp_path)


def test_a_weight_of_zero_is_not_a_mask(page: Page, expected: Expected) -> None:
    """What a row may attend to is decided by the mask: weights vanish where numbers have few digits."""

    def rounded(step: Any) -> Any:
        few = np.where(step.values < step.values.max(1, keepdims=True), 0, 1)
        return replace(step, values=few.astype(np.float32)) if step.operation == "softmax" else step

    shown = page.open(TEXT, "card=softmax&cell=2,0", rounded)
    n = len(expected.encoder["embeddings"].rows)
    assert answered(shown, "softmax")["chance"] == 1 / n
    for card, knob in (("weighted-sum", "even"), ("heads", ""), ("alignment", ""), ("cross", "")):
        shown = page.open(TEXT, f"card={card}&knob={knob}&cell=2,0", rounded)
        numbers = answered(shown, card)
        question_of(shown)
        if card == "weighted-sum":
            mean = expected.values("self_attn.values").mean(0)[0].item()
            assert exact_numbers(shown)["mean"] == pytest.approx(mean, abs=2e-3)  # float16
        elif card == "heads":
            assert numbers["chance"] == n * (1 - (1 - 1 / n) ** 2)
            assert "undefined" not in shown.locator(".card").inner_text()
        else:
            assert numbers["chance"] == 1 / n


def test_a_card_without_the_weights_of_a_large_model_has_no_number_of_them(page: Page) -> None:
    shown = page.open(TEXT, "card=concat&knob=1", lambda step: replace(step, weight=None))
    assert answered(shown, "concat").keys() == {"heads", "d_v", "width", "d_model"}
    assert shown.locator(".choice-buttons").count() == 0


def test_equal_weights_are_both_right(page: Page) -> None:
    """And two tokens of the same name have numbers."""

    def even(step: Any) -> Any:
        first = np.isin(np.arange(step.values.shape[1]), (1, 3)) / 2
        return replace(step, values=np.tile(first, (len(step.values), 1))) if step.operation == "softmax" else step

    shown = page.open("dog runs dog runs .", "card=alignment&cell=1,0", even)
    answered(shown, "alignment")
    assert choices(shown) == ["runs #1", "runs #2"]
    for name in ("runs #1", "runs #2"):
        shown.get_by_role("button", name=name).click()
        expect(shown.locator(".verdict")).to_have_text("Right.")
    shown.locator(".tour-choices button:not(.right)").click()
    expect(shown.locator(".verdict")).to_have_text("Not quite. The answer is: “runs #1” or “runs #2”.")
    shown = page.open("dog runs dog runs .", "card=heads&cell=1,0", even)
    answered(shown, "heads")
    assert choices(shown) == ["1", "2"], "each head has the choice"


ATTENDED = """([rows, columns, values, weights]) => {
  const matrix = (numbers) => ({ rows: rows.length, columns: columns.length, values: Float32Array.from(numbers) });
  const step = (numbers) => ({ settings: {}, operands: [], rows, columns, numbers: matrix(numbers) });
  const [scores, shares] = [step(values.map((x) => x ?? -Infinity)), step(weights)];
  return rows.map((_, row) => {
    const keys = mayAttend(scores, row);
    const own = rowOf(shares, row);
    const asked = keys.length ? candidates(columns, own, keys) : null;
    const [even, soft] = [evenWeights(scores, row), softmaxOf(rowOf(scores, row))];
    return { keys, even, soft, asked, halfway: halfwayRows(shares, scores)[0], told: explain(scores, shares, row) };
  });
}"""
EXPLAINED = """globalThis.explain = (scores, shares, row) => {
  const step = { ...shares, operation: "softmax", operands: ["scores"] };
  return scores.columns.map((_, column) => explainCell(step, { row, column }, () => scores).text.textContent);
};"""
SCORES = st.integers(1, 5).flatmap(
    lambda columns: st.lists(
        st.lists(st.none() | st.sampled_from([-3e4, -200.0, 0.0, 0.5, 1.0]), min_size=columns, max_size=columns),
        min_size=1,
        max_size=4,
    )
)


@pytest.fixture(scope="module")
def functions(browser: Any) -> Any:
    """The functions of the cards, in a page."""
    shown = browser.new_page()
    names = "mayAttend, evenWeights, softmaxOf, halfwayRows, candidates, rowOf, readableRow, rowsFrom, explainCell"
    names += ", ATTENTION_CARDS, WRITING_CARDS, Writer"
    scripts = f"{script_text('tour.js')}; Object.assign(globalThis, {{{names}}});"
    shown.add_script_tag(content=f"{scripts}{EXPLAINED}")
    return shown


@given(rows=SCORES)
def test_a_row_attends_to_what_the_mask_leaves(functions: Any, rows: list[list[float | None]]) -> None:
    """Masks of any shape (causal, windows, padding, a row with nothing left), and weights that vanish."""
    columns, names = len(rows[0]), ["\u2581a", "\u2581b", "\u2581a", "c", "d"]
    scores = np.array([[-np.inf if x is None else x for x in row] for row in rows])
    most = np.maximum(scores.max(1, keepdims=True), -1e30)
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(np.exp(scores - most) / np.exp(scores - most).sum(1, keepdims=True)).astype(np.float16)
    flat = [x for row in rows for x in row]
    found = functions.evaluate(
        ATTENDED, [[f"r{i}" for i in range(len(rows))], names[:columns], flat, weights.ravel().tolist()]
    )
    for row, one in enumerate(found):
        keys = np.flatnonzero(np.isfinite(scores[row])).tolist()
        assert one["keys"] == keys
        assert one["even"] == pytest.approx([(column in keys) / max(1, len(keys)) for column in range(columns)])
        assert sum(one["soft"]) == pytest.approx(1 if keys else 0)
        hidden = ["masked" in text for text in one["told"]]
        assert hidden == [column not in keys for column in range(columns)] if keys else all(hidden)
        if one["asked"]:
            asked, own = one["asked"], weights[row]
            assert len(set(asked["choices"])) == len(asked["choices"]) == min(columns, max(2, min(3, len(keys))))
            best = {column for column in keys if own[column] >= own[keys].max() * (1 - 1e-6)}
            assert 1 <= len(asked["right"]) <= len(best) and asked["best"] in best
            assert len(asked["right"]) == min(len(best), 3)
    wide = [row for row in range(len(rows)) if len(found[row]["keys"]) > 2]
    assert not wide or found[0]["halfway"] in wide


PIECES = st.sampled_from(["<2de>", "</s>", "\u2581", "\u2581a", "b", ".", "\u25812", "<0xE4>", "[CLS]", "é"])


@given(pieces=st.lists(PIECES, min_size=1, max_size=6), first=st.integers(0, 5))
def test_a_card_begins_with_a_token_that_is_text(functions: Any, pieces: list[str], first: int) -> None:
    row = functions.evaluate("([rows, first]) => readableRow({ rows }, rowsFrom({ rows }, first))", [pieces, first])
    order = [*range(first, len(pieces)), *range(min(first, len(pieces)))]
    assert row == next((at for at in order if pieces[at] in ("\u2581a", "b", "\u25812", "é")), order[0])


TYPED = st.lists(st.sampled_from(["Hund", "2", "."]), min_size=1, max_size=4).map(" ".join)


@given(typed=TYPED, added=st.booleans())
def test_tokens_that_the_page_adds_are_not_typed(functions: Any, typed: str, added: bool) -> None:
    """And what special tokens mean is said where they are."""
    rows = [*["<2de>"] * added, *(f"\u2581{word}" for word in typed.split()), "\u2581", "</s>"]
    show = """([rows, text]) => ATTENTION_CARDS.tokens.show({
      own: async () => ({ embeddings: { rows } }), host: { text: () => text } })"""
    card = functions.evaluate(show, [rows, f"<2de> {typed}" if added else typed])
    sizes = {"tokens": len(rows), "words": len(typed.split()), "characters": len(typed), "special": 1 + added}
    assert card["numbers"] == sizes | {"marks": "<2de> </s>" if added else "</s>"}
    assert card["notes"] == ["special", *["language"] * added, "end", "blank"]
    assert functions.evaluate(show, [["\u2581a", "b"], "ab"])["notes"] == []


@given(read=st.lists(st.sampled_from(["\u2581a", "b", "</s>"]), min_size=1, max_size=5))
def test_greedy_search_beside_what_follows(functions: Any, read: list[str]) -> None:
    show = """(rows) => WRITING_CARDS.greedy.show({ decoder: async () => ({ probabilities: {
      rows, predictions: rows.map(() => ({ candidates: [["b", -1]] })) } }) })"""
    card = functions.evaluate(show, read)
    assert len(card["table"]["rows"]) == len(read) - 1
    for line, follower in zip(card["table"]["rows"], read[1:], strict=True):
        assert line[1].split(" #")[0] == follower.removeprefix("\u2581") and line[2] == "b"
    assert len(card["choices"]) >= 2 if len(read) > 1 else not card["choices"], "a text without a step"


WRITTEN = r"""([common, card, language, text, n]) => {
  const given = (name) => (/size|listed|heads|paper|warmup/.test(name) ? 8 : n);
  const numbers = Object.fromEntries([...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => [name, given(name)]));
  return new Writer(common, card, language).text(text, numbers).map((one) => one.textContent ?? one).join("");
}"""


def test_a_number_chooses_the_form_of_its_noun(functions: Any) -> None:
    """And no line breaks within a number."""
    for language, catalogue in TEXTS.items():
        for card, texts in catalogue["cards"].items():
            both = texts["question"] + " " + texts["text"]
            given = [[catalogue["common"], texts, language, both, n] for n in (1, 3)]
            written = [functions.evaluate(WRITTEN, one) for one in given]
            plural = {"en": r"\b1 (tokens|words|characters|steps)\b", "de": r"\b1 (Tokens|Wörter|Schritte)"}[language]
            assert not re.search(plural, written[0]), card
            assert not re.search(r"\b3 (token|word|step|Token|Wort|Schritt)\b", written[1]), card
    small = functions.evaluate("new Writer({}, {}, 'en').written(5.6e-6)")
    assert small == "5.6\u00a0·\u00a010⁻⁶"


def test_the_curve_of_the_learning_rate(toured: Callable[..., Any], expected: Expected) -> None:
    """A straight rise to its corner at the peak, then the inverse square root; both axes name peak and end."""
    for warmup in (1000, 4000, 16000):
        shown = toured(f"card=warm-up&knob={warmup}")
        answered(shown, "warm-up")
        wanted = expected.card("warm-up", str(warmup))
        marks = shown.locator(".tour-curve [data-name]").evaluate_all(
            "(nodes) => nodes.map((node) => [node.dataset.name, Number(node.dataset.value)])"
        )
        assert dict(marks) == pytest.approx(
            {"step.0": warmup, "rate.0": wanted["peak"], "step.1": 64000, "rate.1": wanted["rate"]}
        )
        line = shown.locator(".tour-curve polyline").get_attribute("points")
        points = [tuple(map(float, point.split(","))) for point in line.split()]
        (left, bottom), (corner, top), (right, _) = points[0], points[1], points[-1]
        assert (corner - left) / (right - left) == pytest.approx(warmup / 64000)
        for x, y in points[1:]:
            step, share = 64000 * (x - left) / (right - left), (bottom - y) / (bottom - top)
            assert share == pytest.approx(math.sqrt(warmup / step), rel=1e-6)


def test_it_speaks_german_and_another_sentence(toured: Callable[..., Any]) -> None:
    shown = toured("card=warm-up")
    shown.get_by_role("combobox", name="Language").select_option("de")
    expect(shown.get_by_role("button", name="Weiter →")).to_be_visible()
    assert answered(shown, "warm-up")["warmup"] == 4000
    expect(shown.locator(".card")).to_contain_text("4.000")
    shown.get_by_role("combobox", name="Karten").select_option("recurrence")
    shown.get_by_label("Text", exact=True).fill("Zwei Männer")
    expect(shown.locator('.card[data-card="recurrence"] .question')).to_contain_text("Zwei")


LINKED = "Zwei Männer reden über 日本 & „50 %“ #1 + 2."


def test_a_link_to_a_card_has_the_sentence(
    toured: Callable[..., Any], new_page: Callable[..., Any], address: str
) -> None:
    """The address that the page wrote opens the same card with the same sentence elsewhere."""
    shown = toured("card=tokens")
    shown.get_by_label("Text", exact=True).fill(LINKED)
    expect(shown.locator(".pane .source")).to_have_text(LINKED)
    numbers = answered(shown, "tokens")
    assert numbers["characters"] == len(LINKED)
    other = new_page(allowed=address)
    other.goto(shown.url)
    expect(other.get_by_label("Text", exact=True)).to_have_value(LINKED)
    assert answered(other, "tokens") == numbers


def test_an_address_leaves_out_a_text_that_is_too_long_for_it(
    new_page: Callable[..., Any], path: Path, tmp_path: Path
) -> None:
    model = headwise.load(path, "cpu")
    record, trace = model.look_inside(TEXT)
    for text, missing in (("ä" * 1300, False), ("ä" * 1400, True)):  # six characters each in an address
        contents = {**page_contents(record, trace, "a model", walks=model.walks(TEXT)), "text": text}
        (tmp_path / "page.html").write_text(inspection_page([contents]), encoding="utf-8")
        shown = new_page()
        shown.goto(f"{(tmp_path / 'page.html').as_uri()}#view=tour&card=scale&text={quote(text)}")
        expect(shown.locator(".card h2")).not_to_be_empty()
        assert (shown.locator("text=too long for an address").count() > 0) is missing
        assert "card=scale" in shown.url and ("text=" not in shown.url) is missing


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1366])
def test_nothing_is_cut_off_and_axe_has_no_complaint(toured: Callable[..., Any], width: int, scheme: str) -> None:
    shown = toured("card=mask", width=width, color_scheme=scheme)
    for card in ("mask", "by-hand", "warm-up"):
        shown.get_by_role("combobox", name="Cards").select_option(card)
        answered(shown, card)
        assert shown.evaluate("document.documentElement.scrollWidth") == width, card
        assert violations(shown) == [], card


def test_the_keyboard_suffices(toured: Callable[..., Any]) -> None:
    shown = toured("card=scale")
    shown.get_by_role("button", name="be greater").focus()
    shown.keyboard.press("Enter")
    expect(shown.locator(".verdict")).not_to_be_empty()
    assert shown.evaluate("document.activeElement.textContent") == "be greater"
    off = shown.get_by_role("button", name="off", exact=True)
    off.focus()
    shown.keyboard.press("Enter")
    expect(shown.get_by_role("button", name="off", exact=True)).to_have_attribute("aria-pressed", "true")
    assert shown.evaluate("document.activeElement.textContent") == "off"
    before = shown.evaluate("location.hash")
    shown.keyboard.press("ArrowDown")
    shown.wait_for_function("() => scrollY > 0")
    assert shown.evaluate("location.hash") == before


@pytest.mark.parametrize("family", ["gpt2", "bert", "llama", "t5", "gpt_neox"])
def test_other_families_have_the_cards_that_fit(new_page: Callable[..., Any], tmp_path: Path, family: str) -> None:
    shown = new_page()
    shown.goto(f"{page_writer(tmp_path)(family).as_uri()}#view=tour")
    cards = shown.get_by_role("combobox", name="Cards").locator("option")
    expect(cards.first).to_contain_text("recurrence")
    names = cards.evaluate_all("(nodes) => nodes.map((node) => node.value)")
    assert ("cross" in names, "mask" in names) == (family == "t5", family != "bert")
    for card in names:
        numbers = answered(shown, card)
        assert all(value == value for value in numbers.values()), card
        assert card != "norm" or ("mean" in numbers) == (family not in ("llama", "t5")), "whether it subtracts the mean"
        if card == "recurrence":  # what a token sees
            assert ("kept" in numbers, "pairs" in numbers) == (
                (False, True) if family in ("bert", "t5") else (True, False)
            )
        if card == "positions":
            assert ("causal mask" in shown.locator(".card .sentence").inner_text()) == (family == "gpt2")
        for text in shown.locator("data").all_inner_texts():  # a page has numbers of 16 bits
            digits = re.sub(r"\s·.*|\D", "", text).strip("0")
            assert len(digits) <= 3 or "." not in text, (card, text)
        if card != names[-1]:
            shown.get_by_role("button", name="Next →").click()
    if family in ("gpt2", "bert"):
        sound_cards(shown, names, {})


def test_the_exported_page_has_the_same_cards(
    new_page: Callable[..., Any], path: Path, expected: Expected, tmp_path: Path
) -> None:
    """From a file, on a phone; its numbers are those of 8 bits."""
    export_page([translation_folder(path)], tmp_path / "page.html")
    shown = new_page(width=390)
    shown.goto(f"{(tmp_path / 'page.html').as_uri()}#view=tour&text={quote(TEXT)}")
    counted = {
        "length",
        "recurrent",
        "pairs",
        "tokens",
        "d_model",
        "d_k",
        "d_ff",
        "heads",
        "size",
        "warmup",
        "patches",
        "root",
    }
    expect(shown.locator(".card h2")).to_be_in_viewport()
    assert shown.locator(".tour").bounding_box()["y"] < 300, "above the text"
    for card in CARDS:
        numbers = answered(shown, card)
        wanted = expected.card(card)
        exact = card in ("recurrence", "tokens", "warm-up", "families", "pictures")
        notes = shown.locator(".card > .note", has_text="weights rounded to 8 bits")
        expect(notes).to_have_count(0 if exact else 1)
        if card not in ("cross", "mask", "greedy", "beam", "alignment"):  # the output is another one
            assert {name: numbers[name] for name in wanted.keys() & counted} == {
                name: wanted[name] for name in wanted.keys() & counted
            }
            assert numbers.keys() == wanted.keys(), card
        assert shown.evaluate("document.documentElement.scrollWidth") == 390, card
        if card != CARDS[-1]:
            shown.get_by_role("button", name="Next →").click()
    assert violations(shown) == []
    shown.reload()
    expect(shown.locator('.card[data-card="pictures"]')).to_be_visible()
    answered(shown, "pictures")
    shown.get_by_label("Text", exact=True).fill(LINKED)
    shown.keyboard.press("Control+Enter")
    expect(shown.locator("#details .source")).to_have_text(LINKED)
    expect(shown.locator(".verdict")).to_have_count(0)
    assert answered(shown, "pictures")["read"] == 197
    shown.goto(f"{shown.url.replace('card=pictures', 'card=tokens')}")  # typed into the same page
    expect(shown.locator("#details .source")).to_have_text(LINKED)
    assert answered(shown, "tokens")["characters"] == len(LINKED)
    shown.get_by_label("Text", exact=True).fill("ä" * 1400)
    shown.keyboard.press("Control+Enter")  # the page translates it in parts
    expect(shown.locator("#details .source")).not_to_have_text(LINKED)
    assert "card=tokens" in shown.url and f"text={quote('ä' * 9)}" in shown.url


def test_a_long_row_shows_its_greatest_weights(toured: Callable[..., Any]) -> None:
    shown = toured(f"card=mask&text={quote('Zwei Männer reden . ' * 9)}")  # most weights are zero
    expect(shown.locator(".pane .source")).to_contain_text("Männer")
    answered(shown, "mask")
    assert shown.locator(".tour-bars li:not(.chance)").count() == 24
    assert shown.locator(".tour-bars .best").count() == 1
    tokens = shown.get_by_role("combobox", name="Token").locator("option").count()
    assert numbers_of(shown.locator(".card"))["more"] == tokens - 24 > 0
    expect(shown.locator(".tour-bars + .note")).to_contain_text("not shown")


def test_tokens_without_letters_are_visible(new_page: Callable[..., Any]) -> None:
    page = new_page()
    page.add_script_tag(content=f"{script_text('pieces.js')}; globalThis.label = label;")
    assert page.evaluate('[" ", "\\n", "▁", "▁a", "▁▁"].map(label)') == ["␣", "⏎", "␣", "a", "␣"]


def test_a_page_without_a_server_has_no_beam_to_change(
    new_page: Callable[..., Any], path: Path, tmp_path: Path
) -> None:
    model = headwise.load(path, "cpu")
    record, trace = model.look_inside(TEXT)
    walks = model.walks(TEXT)
    assert repr(record.show("tour", walks=walks)) == "<page: view tour; a notebook shows it>"
    contents = page_contents(record, trace, "a model", walks=walks)
    (tmp_path / "page.html").write_text(inspection_page([contents]), encoding="utf-8")
    shown = new_page()
    shown.goto(f"{(tmp_path / 'page.html').as_uri()}#view=tour&card=scale")
    assert answered(shown, "scale")["root"] == 8**0.5
    assert "beam" not in shown.locator(".tour-bar option").evaluate_all("(nodes) => nodes.map((node) => node.value)")
