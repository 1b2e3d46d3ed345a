"""The view Walk for networks whose walks are too large for a page: every layer and head, wherever it is shown."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from browser.conftest import write_model
from browser.walked import page_of
from playwright.sync_api import expect

import headwise
from headwise.cli.commands.explore import contents
from headwise.models.load import translation_folder
from headwise.serve.explorer.answers import ExplorerModel
from headwise.serve.explorer.server import ExplorerServer
from headwise.serve.web.page import export_page
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.page import walks

LARGE = {"n_heads": 16, "d_ff": 24, "n_encoder_layers": 12, "n_decoder_layers": 12}
TEXT = "Zwei Männer reden , der Hund sieht die Männer . " * 10


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, model_paths: dict[str, Path]) -> Path:
    """12 + 12 layers of 16 heads."""
    tokenizer = Tokenizer.load(model_paths["transformer"] / "tokenizer.json")
    assert len(tokenizer.encode(TEXT)) >= 100
    return write_model(tmp_path_factory.mktemp("large") / "model", LARGE, tokenizer, {})


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_explorer_walks_through_the_last_layer_and_head(
    new_page: Callable[..., Any], large: Path, stack: str
) -> None:
    with ExplorerServer([ExplorerModel("large", headwise.load(large, "cpu"), contents())], port=0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        shown = new_page(allowed=server.url)
        where = f"view=walk&stack={stack}&walkLayer=11&walkHead=15&step=self_attn.softmax&cell=1,0"
        shown.goto(f"{server.url}#{where}&text={TEXT.strip().replace(' ', '+')}")
        expect(shown.locator(".figure-where")).to_have_text(f"You are here: {stack}, layer 11, head 15.")
        expect(shown.locator(".cell-lines li").first).to_contain_text("exp(")
        for name, count in (("layer", 12), ("head", 16)):
            buttons = shown.get_by_role("group", name=name, exact=True).get_by_role("button")
            expect(buttons).to_have_text([str(number) for number in range(count)])
        server.shutdown()
        thread.join()


def test_an_exported_page_walks_through_the_last_layer_and_head(
    new_page: Callable[..., Any], large: Path, tmp_path: Path
) -> None:
    export_page([translation_folder(large)], tmp_path / "page.html")
    page = new_page()
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#text={TEXT.strip().replace(' ', '%20')}&walk=1")
    expect(page.locator(".walk-panel h2")).to_have_text("Embeddings")
    for stack in ("encoder", "decoder"):
        page.get_by_role("button", name=f"{stack}: ").filter(has_text="self-attention").click()
        page.get_by_role("combobox", name="Layer").select_option("11")
        page.get_by_role("combobox", name="Head").select_option("15")
        expect(page.locator(".figure-where")).to_contain_text(f"{stack}, layer 11")
        page.get_by_role("group", name="steps in this box").get_by_role("button", name="Softmax").click()
        expect(page.locator(".figure-where")).to_have_text(f"You are here: {stack}, layer 11, head 15.")
        page.locator(".heatmap canvas").press("Enter")
        expect(page.locator(".cell-lines li").first).to_contain_text("exp(")


def test_a_step_that_is_chosen_while_a_box_is_on_its_way_stays(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path
) -> None:
    """Both are clicked before the worker can answer; the walk of the box began with its first step."""
    export_page([translation_folder(model_paths["transformer"])], tmp_path / "page.html")
    page = new_page()
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#text=Zwei%20Hunde&walk=1")
    title, steps = page.locator(".walk-panel h2"), page.get_by_role("group", name="steps in this box")
    page.get_by_role("button", name="encoder: ").filter(has_text="self-attention").click()
    steps.get_by_role("button", name="Softmax").click()
    expect(title).to_have_text("Softmax")
    box = page.get_by_role("button", name="decoder: ").filter(has_text="self-attention").element_handle()
    step = steps.get_by_role("button", name="Softmax").element_handle()
    page.evaluate("([box, step]) => { box.dispatchEvent(new MouseEvent('click')); step.click(); }", [box, step])
    expect(page.locator(".figure-where")).to_have_text("You are here: decoder, layer 0, head 0.")
    expect(title).to_have_text("Softmax")


def test_a_saved_page_names_the_option_that_includes_what_it_lacks(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "LARGEST_PAGE", 0)
    model = headwise.load(model_paths["transformer"], "cpu")
    shown = new_page()
    for full in (False, True):
        path = tmp_path / f"{full}.html"
        path.write_text(page_of(model, full), encoding="utf-8")
        shown.goto(f"{path.as_uri()}#view=walk&stack=decoder&walkLayer=2&walkHead=1&step=cross_attn.softmax&cell=0,0")
        if full:
            expect(shown.locator(".figure-where")).to_have_text("You are here: decoder, layer 2, head 1.")
            expect(shown.locator(".cell-lines li").first).to_contain_text("exp(")
        else:
            expect(shown.locator(".walk .empty")).to_contain_text("inspect --full-walk")
