"""Page and explorer for what is no pair of texts: one text, a picture, a sound; small random models of each kind."""

import os
import signal
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.axe import violations
from browser.layout import HEIGHTS, check_layout
from browser.test_page import COVERED
from playwright.sync_api import expect
from tiny_families import HEARING, write_tiny

import headwise
from headwise.evaluate.pages.document import inspection_page
from headwise.view.page.contents import page_contents

image = pytest.importorskip("PIL.Image")
pytest.importorskip("soundfile")

TEXT = "A dog runs."
STACK = {"num_hidden_layers": 2}
KINDS = {
    "bert": STACK,
    "gpt2": {"n_layer": 2},
    "vit": {**STACK, "image_size": 32, "patch_size": 8},
    "whisper": {"max_source_positions": 100},
}
VIEWS = {
    "bert": ["Lines", "Matrix", "All heads", "Probabilities", "Walk", "Tour"],
    "gpt2": ["Lines", "Matrix", "All heads", "Probabilities", "Walk", "Tour"],
    "vit": ["Picture", "Lines", "Matrix", "All heads", "Probabilities"],
    "whisper": ["Sound", "Lines", "Matrix", "All heads", "Probabilities"],
}
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each kind reads: the picture is bright in one corner, the sound a tone that grows louder for a second."""
    folder = tmp_path_factory.mktemp("given")
    pixels = np.full((40, 40, 3), 30, np.uint8)
    pixels[:10, 30:] = (250, 210, 60)
    image.fromarray(pixels).save(folder / "corner.png")
    samples = np.sin(np.arange(16_000) * 0.2) * np.linspace(0, 8000, 16_000)
    with wave.open(str(folder / "tone.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return {"bert": TEXT, "gpt2": TEXT, "vit": str(folder / "corner.png"), "whisper": str(folder / "tone.wav")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    for kind, folder in made.items():
        write_tiny(folder, kind, KINDS[kind], HEARING if kind == "whisper" else None)
    return made


@pytest.fixture(scope="module")
def pages(folders: dict[str, Path], given: dict[str, str]) -> dict[str, str]:
    """The page of each kind."""
    written = {}
    for kind, folder in folders.items():
        model: Any = headwise.load(folder, "cpu")
        said = {"target": "a dog"} if kind == "whisper" else {}
        walks = model.walks(given[kind]) if hasattr(model, "walks") else None
        contents = page_contents(*model.look_inside(given[kind], **said), kind, walks=walks)
        written[kind] = inspection_page([contents])
    return written


@pytest.fixture
def opened(new_page: Callable[..., Any], pages: dict[str, str], tmp_path: Path) -> Opened:
    def open_page(kind: str, hash: str = "", **options: Any) -> Any:
        path = tmp_path / f"{kind}.html"
        path.write_text(pages[kind], encoding="utf-8")
        shown = new_page(**options)
        shown.goto(f"{path.as_uri()}#{hash}")
        shown.wait_for_selector("html[data-ready]")
        drawn(shown)
        return shown

    return open_page


def drawn(shown: Any) -> str:
    shown.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return shown.evaluate("location.hash")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_only_views_that_mean_something_are_offered(kind: str, scheme: str, opened: Opened) -> None:
    shown = opened(kind, color_scheme=scheme)
    assert shown.locator(".views button").all_inner_texts() == VIEWS[kind]
    for number, name in enumerate(VIEWS[kind], start=1):
        shown.keyboard.press(str(number))
        drawn(shown)
        assert shown.locator('.views [aria-current="page"]').inner_text() == name
        assert shown.locator(".stage .empty").count() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_needs_no_sideways_scrolling(kind: str, opened: Opened) -> None:
    shown = opened(kind, width=360)
    for key in "12345"[: len(VIEWS[kind])]:
        shown.keyboard.press(key)
        drawn(shown)
        assert shown.evaluate("document.documentElement.scrollWidth") == 360, key


@pytest.mark.parametrize(("kind", "view"), [("vit", "picture"), ("whisper", "sound")])
def test_the_layout_of_pictures_and_sounds(opened: Opened, kind: str, view: str) -> None:
    check_layout(lambda width: opened(kind, f"view={view}&fix=q2", width=width, height=HEIGHTS[width]), view)


# --- Pictures


def test_the_readout_of_a_zoomed_page_does_not_cover_the_picture(opened: Opened) -> None:
    shown = opened("vit", "layer=1&head=1&fix=q6", width=683, height=384)
    for top in range(0, 800, 90):
        shown.evaluate(f"scrollTo(0, {top})")
        assert not shown.evaluate(COVERED), top


def test_a_picture_is_dark_where_nobody_looks(opened: Opened) -> None:
    """The brightest patch on the page is the one that the readout names first."""
    shown = opened("vit", "layer=1&head=1&fix=q6")
    named = shown.locator(".readout .bars li").filter(has_text="row").first.locator("span").first.inner_text()
    light = shown.evaluate(
        """() => { const canvas = document.querySelector("canvas.picture"), context = canvas.getContext("2d");
        const size = canvas.width / 4, found = [], all = context.getImageData(0, 0, canvas.width, canvas.height).data;
        for (let row = 0; row < 4; row++) for (let col = 0; col < 4; col++) {
          const at = 4 * (Math.round((row + 0.5) * size) * canvas.width + Math.round((col + 0.5) * size));
          found.push((all[at] + all[at + 1] + all[at + 2]) / (row === 0 && col === 3 ? 520 : 90));
        } return found; }"""
    )
    best = int(np.argmax(light))
    assert named == f"row {best // 4}, col {best % 4}"


def test_a_patch_is_chosen_by_pointer_and_by_keys(opened: Opened) -> None:
    shown = opened("vit")
    assert shown.get_by_role("button", name="class token").get_attribute("aria-pressed") == "true"
    box = shown.locator("canvas.picture").bounding_box()
    shown.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.1)
    assert "fix=q4" in drawn(shown)  # behind the class token
    expect(shown.locator('.picture-view [aria-pressed="true"]')).to_have_text("row 0, col 3")
    shown.keyboard.press("ArrowDown")
    assert "fix=q5" in drawn(shown)
    shown.get_by_role("button", name="mean of all").click()
    assert "fix" not in drawn(shown)
    shown.mouse.move(0, 0)
    assert "All positions on average" in shown.locator(".picture-view .note").inner_text()


def test_labels_of_a_picture_layer_by_layer(opened: Opened) -> None:
    shown = opened("vit", "view=probabilities")
    assert sorted(shown.locator(".bars").first.locator("li > :first-child").all_inner_texts()) == ["cat", "dog", "owl"]
    assert shown.locator(".lens tr").count() == 2
    assert "What the whole is" in shown.locator(".probabilities-detail").inner_text()


# --- Sounds


def test_a_transcript_over_the_seconds(opened: Opened) -> None:
    shown = opened("whisper", "layer=0&head=0&fix=q3")
    canvas = shown.locator(".sound-view > canvas").first
    assert "most at" in canvas.get_attribute("aria-label")
    shown.keyboard.press("ArrowDown")
    assert "fix=q4" in drawn(shown)
    shown.get_by_role("group", name="attention").get_by_role("button", name="encoder").click()
    drawn(shown)
    box = shown.locator("canvas.picture").bounding_box()
    shown.mouse.click(box["x"] + 100, box["y"] + box["height"] * 0.5)
    assert "part=encoder" in drawn(shown) and "fix=q25" in drawn(shown)  # of 50 stretches and the silence
    assert "0.50 s attends to" in shown.locator(".readout h3").inner_text()
    assert shown.get_by_role("group", name="attention").get_by_role("button", name="decoder").count() == 0


# --- Texts alone


def test_a_decoder_is_shown_with_what_comes_next(opened: Opened) -> None:
    shown = opened("gpt2")
    assert [text.split(" (")[0] for text in shown.locator(".columns-side h3").all_inner_texts()] == [
        "text so far",
        "what comes next",
    ]
    shown.keyboard.press("4")
    drawn(shown)
    assert shown.locator(".chip").last.inner_text().split() == ["<next>", "?"]
    shown.locator(".chip").last.click()
    drawn(shown)
    assert shown.locator(".probabilities-detail .bars").first.locator("li").count() == 10


def test_words_of_a_text_alone(opened: Opened) -> None:
    """Nothing predicts the first token, whose word is one token longer among the keys than among the queries."""
    shown = opened("gpt2", "unit=words&layer=0&head=0")
    assert shown.locator(".columns-side.k .piece").all_inner_texts() == ["A", "dog", "runs."]
    assert shown.locator(".columns-side.q .piece").all_inner_texts() == ["dog", "runs.", "<next>"]


# --- The explorer


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "headwise", "explore", str(folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith("http://127.0.0.1:"), line
        try:
            yield line.split()[0]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_text_is_read_on_and_gone_on_with(folders: dict[str, Path], new_page: Callable[..., Any]) -> None:
    with serving(folders["gpt2"]) as address:
        shown = new_page(allowed=address)
        shown.goto(f"{address}#view=probabilities&text=A+dog")
        expect(shown.locator(".pane .source")).to_have_text("A dog")
        assert shown.locator("#prefix").count() == shown.locator("#beam").count() == 0
        shown.locator(".chip").last.click()
        expect(shown.locator(".chip").last).to_have_attribute("aria-pressed", "true")  # drawn with the next frame
        candidate = shown.locator(".bars button").filter(has_not_text="<").first
        written = candidate.inner_text().strip()
        candidate.click()
        expect(shown.locator(".pane .source")).to_have_text(f"A dog{written}".replace("▁", " "))
        shown.locator(".masks summary").click()
        shown.get_by_role("button", name="silence decoder self-attention layer 0 head 1").click()
        expect(shown.locator(".masks summary")).to_contain_text(": 1")
        expect(shown.locator(".status")).to_have_text("")


def test_a_picture_is_chosen(folders: dict[str, Path], given: dict[str, str], new_page: Callable[..., Any]) -> None:
    with serving(folders["vit"]) as address:
        shown = new_page(allowed=address, expected="status of 400")
        shown.goto(address)
        expect(shown.locator(".status")).to_have_text("Choose the file of a picture; it stays on this computer.")
        shown.get_by_label("Picture", exact=True).set_input_files(given["vit"])
        expect(shown.locator(".pane .source")).to_have_text("corner.png")
        expect(shown.locator("canvas.picture")).to_be_visible()
        shown.get_by_label("Picture", exact=True).set_input_files(
            {"name": "a.png", "mimeType": "image/png", "buffer": b"nothing"}
        )
        expect(shown.locator(".status")).to_contain_text("a.png: is not a readable image file")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["vit", "whisper"])
def test_views_of_pictures_and_sounds_are_accessible(opened: Opened, kind: str, scheme: str) -> None:
    shown = opened(kind, color_scheme=scheme)
    for view in VIEWS[kind]:
        shown.get_by_role("button", name=view, exact=True).click()
        assert violations(shown) == [], view
