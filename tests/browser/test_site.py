"""The documentation site: built without warnings, and nothing on its pages comes from elsewhere."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from headwise.models.load import translation_folder
from headwise.serve.web.page import export_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "",
    "getting-started/",
    "how-to/serving/",
    "inspect/",
    "tutorial/1-from-rnns-to-attention/",
    "concepts/families/",
    "reference/commands/translate/",
    "reference/settings/",
    "reference/python/core/",
    "results/speed/",
    "results/bench_2-core-cpu-avx2_2026-11-23/",
    "project/changelog/",
    "source/src/headwise/config/network.py/",
)
SMALL = {"NO_MKDOCS_2_WARNING": "1", "HEADWISE_TUTORIAL": "small"}
LOADED = re.compile(r'<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc="?(?:https?:)?//[^>]*>')
LINKED = re.compile(r"<link\b[^>]*>")
NO_LOADING = ('rel="canonical"', 'rel="next"', 'rel="prev"', "rel=canonical", "rel=next", "rel=prev")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model_paths: dict[str, Path]) -> Path:
    """The site, with a small model in place of the sentence model."""
    out, model = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("model") / "model.html"
    export_page([translation_folder(model_paths["transformer"])], model)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **SMALL, "HEADWISE_SENTENCE_MODEL": str(model)},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return out


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_no_page_names_a_script_font_or_picture_elsewhere(folder: Path) -> None:
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text(encoding="utf-8")
        links = [link for link in LINKED.findall(text) if not any(kind in link for kind in NO_LOADING)]
        assert not [link for link in links if re.search(r'href="?(?:https?:)?//', link)], page
        assert not LOADED.findall(text), page
    for style in folder.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\W*(?:https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_asks_no_other_server(site: str, new_page: Callable[..., Any], path: str, width: int) -> None:
    page = new_page(site, width=width)
    response = page.goto(site + path)
    assert response.status == 200
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_formulas_are_drawn(site: str, new_page: Callable[..., Any]) -> None:
    page = new_page(site)
    page.goto(site)
    fraction = page.locator("math mfrac").first.bounding_box()
    assert fraction["height"] > 1.2 * page.locator("math mi").first.bounding_box()["height"]
    assert "\\" not in page.locator("math").first.text_content()


def test_a_formula_fits_a_phone(site: str, new_page: Callable[..., Any]) -> None:
    page = new_page(site, width=390)
    page.goto(site)
    box = page.locator("math").first.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_the_front_page_begins_with_the_first_card(site: str, new_page: Callable[..., Any]) -> None:
    page = new_page(site)
    page.goto(site)
    page.locator("details.walk").scroll_into_view_if_needed()
    inside = page.frame_locator("details.walk iframe")
    expect(inside.locator(".card h2")).to_have_text("Why not recurrence?")
    inside.get_by_role("button", name="Next").click()
    expect(inside.locator('.card[data-card="alignment"] .question')).to_be_visible()
    assert page.locator("details.walk").bounding_box()["height"] > 400


def test_a_chapter_has_a_card_with_its_numbers(site: str, new_page: Callable[..., Any]) -> None:
    page = new_page(site, width=390)
    page.goto(f"{site}tutorial/3-multi-head-attention/")
    page.locator("iframe.card").first.scroll_into_view_if_needed()
    card = page.frame_locator("iframe.card >> nth=0").locator('.card[data-card="heads"]')
    card.locator(".tour-choices button").first.click()
    expect(card.locator('data[data-name="heads"]').first).to_have_attribute("value", "2")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_search_finds_a_setting(site: str, new_page: Callable[..., Any]) -> None:
    page = new_page(site)
    page.goto(site)
    page.locator(".md-search__input").fill("label_smoothing")
    page.locator(".md-search-result__link").first.wait_for()
    links = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
    assert any("reference/settings" in link for link in links), links
