"""No violation that axe-core finds (contrast of 4.5:1 among its rules), in any view, in both themes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.axe import violations
from browser.test_page import SRC, TGT, record_of, trace_of
from browser.walked import page_writer
from playwright.sync_api import expect

from headwise.evaluate.pages.document import inspection_page
from headwise.view.page.contents import page_contents
from headwise.view.record import Attribution, Axis, Walk, WalkStep, Word

WALKED = ["embeddings", "self_attn.scores", "self_attn.softmax", "ffn.up"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["lines", "matrix", "grid", "alignment", "beam", "probabilities"])
def test_views_of_attention(new_page: Callable[..., Any], tmp_path: Path, view: str, scheme: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(inspection_page([page_contents(record_of(SRC, TGT), trace_of(TGT), "toy")]), encoding="utf-8")
    shown = new_page(color_scheme=scheme)
    shown.goto(f"{path.as_uri()}#view={view}&layer=1&head=0&fix=q1")
    shown.wait_for_selector("html[data-ready]")
    assert violations(shown) == []


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return page_writer(tmp_path_factory.mktemp("walks"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("family", ["t5", "bert", "gpt2"])
def test_walks(new_page: Callable[..., Any], pages: Callable[[str], Path], family: str, scheme: str) -> None:
    shown = new_page(color_scheme=scheme)
    for step in WALKED:
        shown.goto("about:blank")
        shown.goto(f"{pages(family).as_uri()}#view=walk&step={step}&cell=1,1")
        expect(shown.locator(".account h3")).not_to_be_empty()
        assert violations(shown) == [], step


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["lines", "probabilities", "walk"])
def test_the_explorer(new_page: Callable[..., Any], explorer: str, view: str, scheme: str) -> None:
    shown = new_page(allowed=explorer, color_scheme=scheme)
    shown.goto(f"{explorer}#view={view}&text=A+dog&masks=0-cross-0-0")
    expect(shown.locator(".pane .translation")).to_have_count(2)
    expect(shown.locator(".status")).not_to_have_text("translating …")
    shown.locator(".masks summary").first.click()
    assert violations(shown) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_of_a_notebook(new_page: Callable[..., Any], tmp_path: Path, scheme: str) -> None:
    """In a page with the colours of the browser, as an output of a cell."""
    axis = Axis(["▁A", "▁dog"], [Word("A", 0, 1), Word("dog", 1, 2)])
    values = np.array([[-1.0, 2.0], [0.5, 0.0]], np.float32)
    attribution = Attribution("A dog", "Ein Hund", axis, axis, values, values, values[0], values[1])
    steps = Walk([WalkStep("scores", "self_attn", "scores", "Q K^T", "scores", [], ["A", "dog"], [], values)])
    shown_records = "".join(one._repr_html_() for one in (trace_of(TGT), attribution, steps))
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Outputs</title>'
    body = f"<style>:root {{ color-scheme: light dark }}</style><main><h1>Outputs</h1>{shown_records}</main>"
    path = tmp_path / "notebook.html"
    path.write_text(head + body, encoding="utf-8")
    shown = new_page(color_scheme=scheme)
    shown.goto(path.as_uri())
    shown.locator("summary").click()
    assert violations(shown) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_help(new_page: Callable[..., Any], pages: Callable[[str], Path], scheme: str) -> None:
    shown = new_page(color_scheme=scheme)
    shown.goto(pages("bert").as_uri())
    shown.wait_for_selector("html[data-ready]")
    shown.keyboard.press("?")
    expect(shown.locator("dialog")).to_be_visible()
    assert violations(shown) == []
