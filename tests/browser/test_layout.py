"""Every view at three widths: the same at every load, and nothing wide, cut or overlapping (`layout.py`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser.layout import HEIGHTS, check_layout
from playwright.sync_api import expect

import headwise
from headwise.evaluate.pages.document import inspection_page
from headwise.view.page.contents import page_contents

TEXT = "Zwei Männer reden , der Hund sieht die Männer ."
VIEWS = {
    "lines": "",
    "lines-words": "unit=words",
    "matrix": "",
    "grid": "",
    "alignment": "",
    "beam": "",
    "probabilities": "",
    "walk": "stack=decoder&step=cross_attn.scores&cell=1,1",
    "tour": "",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, model_paths: dict[str, Path]) -> Path:
    model: Any = headwise.load(model_paths["transformer"], "cpu")
    record, trace = model.look_inside(TEXT)
    contents = page_contents(record, trace, "a model", walks=model.walks(TEXT))
    path = tmp_path_factory.mktemp("layout") / "page.html"
    path.write_text(inspection_page([contents]), encoding="utf-8")
    return path


@pytest.mark.parametrize("view", VIEWS)
def test_a_view(new_page: Callable[..., Any], page: Path, view: str) -> None:
    def open_page(width: int) -> Any:
        shown = new_page(width=width, height=HEIGHTS[width])
        shown.goto(f"{page.as_uri()}#view={view.partition('-')[0]}&fix=q1&{VIEWS[view]}")
        shown.wait_for_selector("html[data-ready]")
        if view in ("walk", "tour"):  # whose numbers are unpacked
            expect(shown.locator(".walk-panel h2, .card h2").first).not_to_be_empty()
        return shown

    check_layout(open_page, view)


def test_the_explorer(new_page: Callable[..., Any], explorer: str) -> None:
    def open_page(width: int) -> Any:
        shown = new_page(allowed=explorer, width=width, height=HEIGHTS[width])
        shown.goto(f"{explorer}#view=lines&text=A+dog&layer=1&head=1&fix=q1")
        expect(shown.locator(".pane .translation")).to_have_count(2)
        expect(shown.locator(".status")).to_have_text("")
        return shown

    check_layout(open_page, "explorer")
