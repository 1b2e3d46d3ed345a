"""The explorer: a real server, two small models, and what a reader does with them."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

Explored = Callable[..., Any]
TEXT = "text=A+dog+runs"


@pytest.fixture
def explored(new_page: Callable[..., Any], explorer: str) -> Explored:
    """Opens the explorer at a hash and waits for both translations."""

    def open_page(hash: str = TEXT, **options: Any) -> Any:
        shown = new_page(allowed=explorer, **options)
        shown.goto(f"{explorer}#{hash}")
        settled(shown)
        return shown

    return open_page


def settled(shown: Any) -> None:
    expect(shown.locator(".pane .translation")).to_have_count(2)
    expect(shown.locator(".status")).not_to_have_text("translating …")
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def translations(shown: Any) -> list[str]:
    return shown.locator(".pane .translation").all_text_contents()


def test_two_models_stand_side_by_side(explored: Explored) -> None:
    shown = explored()
    assert shown.locator(".pane .model").all_inner_texts() == ["transformer", "bahdanau"]
    one, other = (shown.locator(".pane").nth(n).bounding_box() for n in range(2))
    assert one["y"] == other["y"]
    shown.get_by_role("group", name="attention").get_by_role("button", name="encoder").click()
    assert "no encoder self-attention" in shown.locator(".pane").nth(1).inner_text()
    assert shown.locator(".pane").nth(0).locator(".piece").count() > 0


def test_it_begins_with_a_sentence_that_the_models_were_validated_on(explored: Explored) -> None:
    shown = explored("view=lines")
    assert shown.get_by_label("Text", exact=True).input_value() == "Zwei Männer reden , der Hund sieht die Männer ."
    expect(shown.locator(".pane .source").first).to_have_text("Zwei Männer reden , der Hund sieht die Männer .")
    expect(shown.locator('.pane [data-mark="q0"]').first).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_placeholders_are_as_readable_as_other_grey_texts(explored: Explored, scheme: str) -> None:
    shown = explored(color_scheme=scheme)
    placeholder = shown.locator("#prefix").evaluate("(node) => getComputedStyle(node, '::placeholder').color")
    assert placeholder == shown.locator(".status").evaluate("(node) => getComputedStyle(node).color")


def test_without_a_text_there_is_an_invitation_and_no_error(explored: Explored) -> None:
    shown = explored()
    shown.get_by_label("Text", exact=True).fill("")
    expect(shown.locator(".status")).to_have_text("Type a text, and its translation follows.")
    assert shown.locator(".status.error").count() == 0
    shown.get_by_label("Text", exact=True).fill("A dog")
    expect(shown.locator(".pane .source").first).to_have_text("A dog")


def test_typing_translates(explored: Explored) -> None:
    shown = explored()
    before = translations(shown)
    shown.get_by_label("Text", exact=True).fill("Zwei Männer reden .")
    expect(shown.locator(".pane .source").first).to_have_text("Zwei Männer reden .")
    settled(shown)
    assert translations(shown) != before
    assert "text=Zwei" in shown.evaluate("location.hash")


def test_the_alignment_follows_the_best_head_of_each_text(explored: Explored) -> None:
    shown = explored(f"view=lines&{TEXT}")
    shown.get_by_role("button", name="Alignment").click()
    shown.get_by_label("Text", exact=True).fill("Zwei Männer reden .")
    expect(shown.locator(".pane .source").first).to_have_text("Zwei Männer reden .")
    settled(shown)
    expect(shown.get_by_role("group", name="layer").locator("[aria-pressed='true']")).to_have_text("best")


def test_a_forced_beginning_changes_the_rest(explored: Explored) -> None:
    shown = explored()
    shown.get_by_label("The translation begins with").fill("Der Hund")
    expect(shown.locator(".pane .translation").first).to_contain_text("Der Hund")
    settled(shown)
    assert all(text.startswith("Der Hund") for text in translations(shown))


def test_another_piece_is_gone_on_with(explored: Explored) -> None:
    shown = explored(f"view=probabilities&fix=q1&{TEXT}")
    other = shown.locator(".pane").first.locator(".bars button").nth(1)
    other.click()
    expect(shown.locator("#prefix")).not_to_have_value("")
    settled(shown)
    prefix = shown.get_by_label("The translation begins with").input_value()
    assert translations(shown)[0].strip().startswith(prefix.split()[0])


def test_silenced_heads_are_compared_at_once(explored: Explored) -> None:
    heads = [f"0-cross-{layer}-{head}" for layer in range(3) for head in range(2)]
    shown = explored(f"masks={','.join(heads[:-1])}&{TEXT}")
    shown.locator(".masks summary").first.click()
    shown.get_by_role("button", name="silence cross-attention layer 2 head 1").click()
    settled(shown)
    expect(shown.locator(".unmasked")).to_have_count(1)
    assert "Silenced heads of transformer: 6" in shown.locator(".masks").first.inner_text()
    assert shown.locator(".pane").nth(1).locator(".unmasked").count() == 0
    shown.get_by_role("button", name="silence none").first.click()
    expect(shown.locator(".unmasked")).to_have_count(0)


def test_a_walk_is_asked_of_the_server_with_its_weights(explored: Explored) -> None:
    shown = explored(f"view=walk&stack=decoder&walkLayer=1&walkHead=1&step=cross_attn.queries&cell=0,1&{TEXT}")
    first = shown.locator(".pane").first
    expect(first.locator(".walk-panel h2")).to_have_text("Queries")
    expect(first.locator(".figure-where")).to_have_text("You are here: decoder, layer 1, head 1.")
    expect(first.locator(".terms thead th")).to_have_count(3)  # dimensions, the row of x, the column of W
    shown.get_by_label("Text", exact=True).fill("Zwei Männer")
    expect(first.locator(".source")).to_have_text("Zwei Männer")
    settled(shown)
    expect(first.locator(".walk-panel h2")).to_have_text("Queries")


def test_a_model_of_another_architecture_is_not_walked_through(explored: Explored) -> None:
    shown = explored(f"view=walk&{TEXT}")
    expect(shown.locator(".pane").nth(1).locator(".empty")).to_contain_text("the model is of another kind")


COLOURS = """([x, y]) => {
  const canvas = document.querySelector(".walk canvas");
  const { width, height, clientWidth } = canvas;
  const scale = width / clientWidth;
  const copy = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(Math.round((x - 4) * scale), Math.round((y - 4) * scale), 8 * scale, 8 * scale);
  return new Set(Array.from({ length: data.length / 4 }, (_, at) => data.slice(4 * at, 4 * at + 4).join())).size;
}"""


def test_masked_scores_are_hatched(explored: Explored) -> None:
    """A score is one colour, also where it is about zero; what the causal mask hides is striped."""
    shown = explored(f"view=walk&stack=decoder&walkLayer=1&step=self_attn.scores&{TEXT}")
    first = shown.locator(".pane").first
    expect(first.locator(".walk-panel h2")).to_have_text("Scores")
    rows = int(first.locator(".formula .numbers").inner_text().split("→ ")[1].split()[0])
    canvas = first.locator(".walk canvas")
    assert f", {rows * (rows - 1) // 2} hidden by the causal mask." in canvas.get_attribute("aria-label")
    box = canvas.bounding_box()
    colours = {}
    for y in range(int(box["height"]) - 12, 0, -16):  # up the last column, of which the last row alone is a score
        canvas.hover(position={"x": box["width"] - 12, "y": y})
        shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        text = first.locator(".account h3").inner_text()
        if ": " in text:
            colours[text.split(": ")[0]] = (text.endswith("∞"), shown.evaluate(COLOURS, [box["width"] - 12, y]))
    assert len(colours) >= 3
    assert {many > 2 for masked, many in colours.values() if masked} == {True}
    assert [many for masked, many in colours.values() if not masked] == [1]


def test_a_walk_goes_through_a_layer_that_is_there(explored: Explored) -> None:
    shown = explored(f"view=walk&stack=encoder&walkLayer=2&{TEXT}")  # the last of the decoder; the encoder has two
    shown.locator(".pane").first.locator(".walk-panel h2").filter(has_text="Embeddings").wait_for()
    assert shown.get_by_role("group", name="layer").get_by_role("button", pressed=True).inner_text() == "0"


def test_a_mistake_gets_a_message_and_the_page_lives_on(explored: Explored) -> None:
    shown = explored(expected="status of 400")
    shown.get_by_label("Text", exact=True).fill("word " * 900)
    shown.wait_for_selector(".status.error")
    assert "at most 4,000" in shown.locator(".status").inner_text()
    shown.get_by_label("Text", exact=True).fill("A dog")
    shown.wait_for_selector(".status:not(.error)")
    settled(shown)
    assert shown.locator(".pane .source").first.inner_text() == "A dog"


def test_the_address_brings_everything_back(explored: Explored) -> None:
    shown = explored("view=matrix&part=cross&layer=1&head=0&fix=q0&text=Zwei+M%C3%A4nner&beam=2&masks=0-cross-0-0")
    assert shown.get_by_label("Text", exact=True).input_value() == "Zwei Männer"
    assert shown.get_by_label("Beam").input_value() == "2"
    assert "transformer: 1" in shown.locator(".masks").first.inner_text()
    assert shown.locator(".heatmap canvas").count() == 2


def test_back_leads_to_the_view_before(explored: Explored) -> None:
    shown = explored(f"view=matrix&{TEXT}")
    for name in ("Lines", "Walk"):
        shown.get_by_role("button", name=name, exact=True).click()
        shown.keyboard.press("t")  # the theme is no step of the history
    for view in ("lines", "matrix"):
        shown.go_back()
        shown.wait_for_function(
            "view => (new URLSearchParams(location.hash.slice(1)).get('view') ?? 'lines') === view", arg=view
        )
        expect(shown.locator(f"[data-key='view {view}']")).to_have_attribute("aria-current", "page")


def test_the_language_of_a_link_stays_in_the_address(explored: Explored) -> None:
    shown = explored(f"language=de&{TEXT}", locale="de-DE")
    assert "language=de" in shown.url


def test_a_phone_needs_no_sideways_scrolling(explored: Explored) -> None:
    shown = explored(width=360)
    for key in "1234567":
        shown.keyboard.press(key)
        shown.wait_for_timeout(100)
        assert shown.evaluate("document.documentElement.scrollWidth") == 360, key
