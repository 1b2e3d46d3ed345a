"""The view Walk in the page of `headwise inspect`: the figure, the steps, and what a cell was computed from."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser.walked import page_of, page_writer
from playwright.sync_api import expect

import headwise

Opened = Callable[..., Any]
FAMILIES = ["paper", "bert", "gpt2", "llama", "t5", "gpt_neox"]
ATTENTION = ["Queries", "Keys", "Values", "Scores", "Softmax", "Weighted sum", "Concatenation", "All heads together"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, model_paths: dict[str, Path]) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("walks")
    write = page_writer(folder)

    def page(family: str) -> Path:
        if family != "paper":
            return write(family)
        path = folder / "paper.html"
        if not path.exists():
            path.write_text(page_of(headwise.load(model_paths["transformer"])), encoding="utf-8")
        return path

    return page


@pytest.fixture
def opened(new_page: Callable[..., Any], pages: Callable[[str], Path]) -> Opened:
    def open_page(family: str, hash: str = "", **options: Any) -> Any:
        shown = new_page(**options)
        shown.goto(f"{pages(family).as_uri()}#view=walk&{hash}")
        expect(shown.locator(".walk-panel h2")).not_to_be_empty()
        return shown

    return open_page


def title(shown: Any) -> Any:
    return shown.locator(".walk-panel h2")


def drawn(shown: Any) -> None:
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def boxes(shown: Any, stack: str) -> list[str]:
    """The boxes of a stack from bottom to top."""
    return (
        shown.get_by_role("group", name=stack, exact=True)
        .locator(".box")
        .evaluate_all("(nodes) => nodes.map((node) => node.getAttribute('aria-label').split(': ')[1])")
    )


MINUS = "\u2212"  # as the page writes it


def number(text: str) -> float:
    return float(text.replace(MINUS, "-").replace("-∞", "-inf"))


POST = ["Multi-head self-attention", "Add & Norm", "Feed-forward", "Add & Norm"]
PRE = ["Norm", "Multi-head self-attention", "Add", "Norm", "Feed-forward", "Add"]
MASKED = ["Norm", "Masked multi-head self-attention", *PRE[2:]]
CROSS = ["Norm", "Multi-head cross-attention", "Add"]
FIGURES = {
    "paper": {
        "encoder": ["Input embedding", "Positional encoding", *POST, "Memory"],
        "decoder": [
            *("Output embedding", "Positional encoding", "Masked multi-head self-attention", "Add & Norm"),
            *("Multi-head cross-attention", "Add & Norm", "Feed-forward", "Add & Norm", "Linear", "Softmax"),
        ],
    },
    "bert": {"encoder": ["Embedding", "Positional encoding", *POST, "Linear", "Softmax"]},
    "gpt2": {"decoder": ["Embedding", "Positional encoding", *MASKED, "Norm", "Linear", "Softmax"]},
    "llama": {"decoder": ["Embedding", *MASKED, "Norm", "Linear", "Softmax"]},
    "gpt_neox": {
        "decoder": [
            "Embedding",
            *("Norm", "Norm", "Masked attention", "Feed-forward", "Add"),
            "Norm",
            "Linear",
            "Softmax",
        ]
    },
    "t5": {
        "encoder": ["Input embedding", *PRE, "Norm"],
        "decoder": ["Output embedding", *MASKED[:3], *CROSS, *PRE[3:], "Norm", "Linear", "Softmax"],
    },
}


@pytest.mark.parametrize("family", FIGURES)
def test_the_figure_is_that_of_the_network(opened: Opened, family: str) -> None:
    shown = opened(family)
    for stack, expected in FIGURES[family].items():
        assert boxes(shown, stack) == expected
    assert shown.get_by_role("group", name="stack").get_by_role("button").all_inner_texts() == list(FIGURES[family])
    assert shown.locator(".crossing path").count() == (2 if len(FIGURES[family]) > 1 else 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_belongs_to_one_box_and_has_a_sentence_and_a_formula(opened: Opened, family: str) -> None:
    shown = opened(family, "stack=decoder")
    seen = []
    for _ in range(50):
        seen.append(title(shown).inner_text())
        expect(shown.locator(".box[aria-current='step']")).to_have_count(1)
        expect(shown.get_by_role("group", name="steps in this box").locator("[aria-pressed='true']")).to_have_text(
            seen[-1]
        )
        assert shown.locator(".sentence").inner_text().endswith(".")
        assert shown.locator(".formula math").count() == 1
        if shown.get_by_role("button", name="Next →").is_disabled():
            break
        shown.keyboard.press("ArrowDown")
        drawn(shown)
    assert seen[0] == "Embeddings"
    assert seen[-1] == "Output probabilities"
    assert [name for name in seen if name in ATTENTION][: len(ATTENTION)] == ATTENTION


@pytest.mark.parametrize("family", FAMILIES)
def test_every_step_explains_a_cell_by_numbers_that_give_it(opened: Opened, family: str) -> None:
    """The last number of the calculation is that of the cell."""
    shown = opened(family, "stack=decoder&cell=1,0")
    for _ in range(50):
        text = shown.locator(".account h3").inner_text()
        lines = shown.locator(".cell-lines li").all_inner_texts()
        assert lines, title(shown).inner_text()
        written = re.findall(rf"{MINUS}?\d+\.\d+(?:e{MINUS}?\d+)?|{MINUS}∞", " ".join(lines))
        value = number(re.split(r": ", text)[-1])
        if written and title(shown).inner_text() not in ("Relative position bias",):
            assert any(abs(number(found) - value) < 0.01 or number(found) == value for found in written), (text, lines)
        if shown.get_by_role("button", name="Next →").is_disabled():
            break
        step = shown.get_by_role("button", name="Next →")
        step.click()
        drawn(shown)
        shown.locator(".heatmap canvas").focus()
        shown.keyboard.press("Enter")
        shown.keyboard.press("ArrowDown")
        drawn(shown)


def test_a_score_shows_its_query_and_its_key(opened: Opened) -> None:
    shown = opened("paper", "stack=decoder&step=self_attn.scores")
    canvas = shown.locator(".heatmap canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 60, "y": box["height"] - 10})
    table = shown.locator(".terms")
    heads = table.locator("thead th").all_inner_texts()
    assert heads[0].startswith("query of “") and heads[1].startswith("key of “") and heads[2] == "product"
    rows = [[number(cell) for cell in row.locator("td").all_inner_texts()] for row in table.locator("tbody tr").all()]
    assert len(rows) == 8  # d_k
    for query, key, product in rows:
        assert query * key == pytest.approx(product, abs=0.01)
    first = number(shown.locator(".cell-lines li").first.inner_text().split("= ")[1])
    assert sum(product for *_, product in rows) == pytest.approx(first, abs=0.01)
    assert "cell=" in shown.evaluate("location.hash")


@pytest.mark.parametrize(("width", "beside"), [(1366, True), (683, False), (390, False)])
def test_the_calculation_of_a_cell_is_in_sight_where_it_was_clicked(opened: Opened, width: int, beside: bool) -> None:
    shown = opened("paper", "stack=decoder&step=self_attn.softmax", width=width, height=768)
    canvas, account = shown.locator(".heatmap canvas"), shown.locator(".account")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 20, "y": 60})
    expect(account.locator(".cell-lines")).to_be_visible()
    text, box = account.locator(".cell-lines").bounding_box(), canvas.bounding_box()
    assert (text["x"] >= box["x"] + box["width"]) is beside
    assert (text["y"] >= box["y"] + box["height"]) is not beside
    if beside:
        assert 0 <= text["y"] < text["y"] + text["height"] <= 768


def test_the_causal_mask_is_hatched_and_named(opened: Opened) -> None:
    shown = opened("gpt2", "step=self_attn.scores&cell=0,3")
    expect(shown.locator(".walk-panel .note").first).to_contain_text("Hatched: hidden by the causal mask.")
    assert "hidden by the causal mask" in shown.locator(".heatmap canvas").get_attribute("aria-label")
    expect(shown.locator(".account h3")).to_contain_text(f"{MINUS}∞")
    expect(shown.locator(".cell-lines")).to_contain_text("the causal mask hides")
    shown = opened("bert", "step=self_attn.scores")
    assert "Hatched" not in shown.locator(".walk-panel").inner_text()


def test_boxes_are_clicked_and_operated_by_keyboard(opened: Opened) -> None:
    shown = opened("paper")
    shown.get_by_role("button", name="encoder: Feed-forward").click()
    expect(title(shown)).to_have_text("Feed-forward, first projection")
    shown.get_by_role("button", name="decoder: Multi-head cross-attention").focus()
    shown.keyboard.press("Enter")
    expect(title(shown)).to_have_text("Memory")
    assert "stack=decoder" in shown.evaluate("location.hash")
    expect(shown.locator(".box[aria-current='step']")).to_have_attribute(
        "aria-label", "decoder: Multi-head cross-attention"
    )


def test_cells_are_chosen_by_keyboard(opened: Opened) -> None:
    shown = opened("paper", "step=self_attn.softmax")
    canvas = shown.locator(".heatmap canvas")
    canvas.focus()
    for key in ("Enter", "ArrowRight", "ArrowDown"):
        shown.keyboard.press(key)
    drawn(shown)
    assert "cell=1%2C1" in shown.evaluate("location.hash")
    assert title(shown).inner_text() == "Softmax"  # the arrows moved in the matrix, not to another step
    expect(shown.locator(".account h3")).not_to_have_text("No cell is selected.")


def test_it_starts_at_layer_0_or_where_the_address_says(opened: Opened) -> None:
    """Whatever head aligns; `layer` and `head` of the address are those of the walk."""
    for hash, number in (("", "0"), ("layer=1&head=1", "1"), ("walkLayer=1&walkHead=1", "1")):
        shown = opened("paper", hash)
        for name in ("layer", "head"):
            group = shown.get_by_role("group", name=name, exact=True)
            expect(group.locator("[aria-pressed='true']")).to_have_text(number)
        assert ("layer=1&head=1" in shown.url) is (number == "1") and "walkLayer" not in shown.url
    shown.get_by_role("group", name="layer", exact=True).get_by_role("button", name="0").click()
    shown.get_by_role("button", name="encoder: Multi-head self-attention").click()
    expect(shown.locator(".figure-where")).to_have_text("You are here: encoder, layer 0, head 1.")
    assert "layer" not in shown.url and "head=1" in shown.url


def test_weights_that_are_not_in_the_page_are_said_to_be_missing(opened: Opened) -> None:
    shown = opened("paper", "step=self_attn.queries&cell=0,0")
    assert shown.locator(".terms thead th").count() == 3
    shown = opened("paper", "step=self_attn.queries&cell=0,0&walkLayer=1")
    expect(shown.locator(".cell-lines")).to_contain_text("would be too large for this page")
    assert shown.locator(".terms thead th").count() == 1


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_wider_than_the_window(opened: Opened, family: str, width: int) -> None:
    shown = opened(family, "step=self_attn.scores&cell=1,1", width=width)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width


def test_a_formula_is_mathml(opened: Opened) -> None:
    shown = opened("paper", "step=self_attn.scores")
    found = shown.locator(".formula math").evaluate('(node) => node.outerHTML.replace(/ [a-z-]+="[^"]*"/g, \'\')')
    numerator = "<mrow><mi>Q</mi><mspace></mspace><msup><mi>K</mi><mi>T</mi></msup></mrow>"
    assert found == f"<math><mfrac>{numerator}<msqrt><msub><mi>d</mi><mi>k</mi></msub></msqrt></mfrac></math>"
