"""The guided tour: every card, its prediction, and every number on it, which torch computes again."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser.axe import violations
from browser.conftest import SHAPES, write_model
from browser.tour_numbers import Expected, Numbers
from browser.walked import page_writer
from playwright.sync_api import expect

import headwise
from headwise.cli.commands.explore import contents
from headwise.evaluate.pages.document import inspection_page, script_text
from headwise.models.load import translation_folder
from headwise.serve.explorer.answers import ExplorerModel
from headwise.serve.explorer.server import ExplorerServer
from headwise.serve.web.page import export_page
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.page.contents import page_contents

TEXT = "A dog runs across the field ."
CARDS = [
    *("recurrence", "alignment", "tokens", "embeddings", "positions", "by-hand", "scores", "scale", "softmax"),
    *("weighted-sum", "heads", "concat", "residual", "norm", "feed-forward", "memory", "mask", "cross", "logits"),
    *("greedy", "beam", "temperature", "loss", "warm-up", "families", "pictures"),
]
KNOBS = [
    ("recurrence", "4", 1), ("positions", "off", 2), ("scale", "off", 3), ("weighted-sum", "even", 2),
    ("concat", "1", 2), ("residual", "off", 1), ("mask", "off", 2), ("beam", "2", 1), ("temperature", "0.5", 2),
    ("warm-up", "1000", 1), ("pictures", "32", 1),
]  # fmt: skip


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
    pairs = body.locator("data").evaluate_all("(nodes) => nodes.map((node) => [node.dataset.name, Number(node.value)])")
    return {name: pytest.approx(value, rel=2e-4, abs=2e-5) for name, value in pairs}


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


@pytest.mark.parametrize(("card", "knob", "row"), KNOBS, ids=[card for card, *_ in KNOBS])
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
    shown.get_by_role("combobox", name="Token").select_option("3")
    expect(shown.locator(".card .verdict")).not_to_be_empty()
    assert "cell=3" in shown.evaluate("location.hash")


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
        if card != names[-1]:
            shown.get_by_role("button", name="Next →").click()


def test_the_exported_page_has_the_same_cards(
    new_page: Callable[..., Any], path: Path, expected: Expected, tmp_path: Path
) -> None:
    """From a file, on a phone; its numbers are those of 8 bits."""
    export_page([translation_folder(path)], tmp_path / "page.html")
    shown = new_page(width=390)
    shown.goto(f"{(tmp_path / 'page.html').as_uri()}#view=tour&text={quote(TEXT)}")
    counted = {"recurrent", "pairs", "tokens", "d_model", "d_k", "d_ff", "heads", "size", "warmup", "patches", "root"}
    expect(shown.locator(".card h2")).to_be_in_viewport()
    assert shown.locator(".tour").bounding_box()["y"] < 300, "above the text"
    for card in CARDS:
        numbers = answered(shown, card)
        wanted = expected.card(card)
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
    assert answered(shown, "pictures")["patches"] == 196
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
