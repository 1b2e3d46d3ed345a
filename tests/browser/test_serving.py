"""The page of `headwise serve`: it shows what its server answers, by mouse, by keyboard, on a phone, in the dark."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import headwise

KEY = "0123456789abcdef"
LINES = "A dog runs . Zwei Männer reden .\n\nDer Hund sieht a < b"


@pytest.fixture(scope="module")
def url(model_paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEY, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "headwise",
        "serve",
        str(model_paths["transformer"]),
        "--languages",
        "en-de",
        "de-en",
    ]
    command += ["--port", "0", "--device", "cpu", "--api-keys", str(keys)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        begun = json.loads(process.stderr.readline())
        reader = Thread(target=process.stderr.read, daemon=True)  # or its pipe would fill
        reader.start()
        yield begun["url"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        reader.join(30)


@pytest.fixture
def opened(new_page: Callable[..., Any], url: str) -> Callable[..., Any]:
    def open_page(key: str = KEY, **options: Any) -> Any:
        page = new_page(allowed=url, **options)
        page.goto(url)
        page.get_by_label("Key").fill(key)
        return page

    return open_page


def translated(page: Any, text: str) -> str:
    page.get_by_label("Text", exact=True).fill(text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#details:not([hidden])")
    return page.text_content("#output")


def test_every_sentence_is_the_models(opened: Callable[..., Any], model_paths: dict[str, Path]) -> None:
    page = opened()
    model = headwise.load(model_paths["transformer"], "cpu")
    one, two, three = (
        found.text for found in model.translate(["A dog runs .", "Zwei Männer reden .", "Der Hund sieht a < b"])
    )
    assert translated(page, LINES) == f"{one} {two}\n\n{three}"
    assert page.locator(".unit").all_text_contents() == [one, two, three]
    assert "seconds" in page.text_content("#status")


def test_tags_are_text(opened: Callable[..., Any]) -> None:
    page = opened()
    assert "<b>" in translated(page, "Der Hund sieht <b>")
    assert page.locator("#output b").count() == page.locator(".words b").count() == 0


def test_a_word_shows_where_it_came_from(opened: Callable[..., Any], model_paths: dict[str, Path]) -> None:
    page = opened()
    translated(page, "A dog runs .")
    model = headwise.load(model_paths["transformer"], "cpu")
    text = model.translate(["A dog runs ."])[0].text
    links = model.align(["A dog runs ."], [text])[0]
    target = min(j for _, j in links)
    page.hover(f".words:nth-of-type(2) .word >> nth={target}")
    marked = page.locator(".words:nth-of-type(1) .linked").all_text_contents()
    assert marked == [word for i, word in enumerate(["A", "dog", "runs", "."]) if (i, target) in links]
    page.mouse.move(0, 0)
    assert page.locator(".linked").count() == 0
    page.focus(f".words:nth-of-type(2) .word >> nth={target}")
    assert page.locator(".words:nth-of-type(1) .linked").count() == len(marked)


def test_another_sentence_is_chosen_by_the_keyboard(opened: Callable[..., Any]) -> None:
    page = opened()
    translated(page, LINES)
    page.focus(".unit >> nth=1")
    page.keyboard.press("Enter")
    assert page.text_content(".words >> nth=0") == "Zwei Männer reden ."
    assert [node.get_attribute("aria-pressed") for node in page.query_selector_all(".unit")] == [
        "false",
        "true",
        "false",
    ]
    assert page.locator(".alternatives li").count() >= 1


def test_what_the_server_refuses_is_said(opened: Callable[..., Any]) -> None:
    page = opened(key="wrong", expected="403")
    page.get_by_label("Text", exact=True).fill("A dog")
    page.click("#translate")
    page.wait_for_selector('#status.error:text-is("Invalid API key")')
    assert page.is_hidden("#details")


def test_no_text_has_no_translation(opened: Callable[..., Any]) -> None:
    page = opened()
    assert translated(page, "A dog runs .")
    page.fill("#source", " ")
    page.click("#translate")
    page.wait_for_selector('#status:text-is("There is nothing to translate.")')
    assert page.text_content("#output") == "" and page.is_hidden("#details") and page.is_disabled("#copy")


def test_a_glossary_is_kept_to(opened: Callable[..., Any]) -> None:
    page = opened()
    page.get_by_text("Glossary", exact=True).click()
    page.locator("#terms").fill("dog = Männer\n\n")
    assert "Männer" in translated(page, "A dog runs .")
    page.locator("#terms").fill("dog")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#status.error")
    assert "“dog”" in page.text_content("#status")
    assert page.text_content("#output") == "" and page.is_disabled("#copy")


def test_a_file_comes_back_translated(opened: Callable[..., Any], model_paths: dict[str, Path]) -> None:
    page = opened()
    assert translated(page, "Zwei Männer reden .")
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"A dog runs .\n"})
    with page.expect_download() as download:
        page.click("#status a")
    text = headwise.load(model_paths["transformer"], "cpu").translate(["A dog runs ."])[0].text
    assert Path(download.value.path()).read_text(encoding="utf-8") == f"{text}\n"
    assert download.value.suggested_filename == "a.txt"
    assert "1 of 1 text translated" in page.text_content("#status") and page.is_hidden("#job")
    assert page.text_content("#output") == "" and page.is_disabled("#copy")


def test_a_file_is_translated_with_the_glossary(opened: Callable[..., Any]) -> None:
    page = opened()
    page.locator("summary").click()
    page.fill("#terms", "dog = Hund\n\nA = Die")
    page.evaluate(
        "() => { const plain = fetch; window.fetch = (url, asked) => (window.sent ??= asked.body, plain(url, asked)); }"
    )
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"A dog runs .\n"})
    page.wait_for_selector("#status a")
    assert page.evaluate("sent.get('glossary')") == "dog\tHund\nA\tDie"


def choose_long_file(page: Any) -> None:
    lines = "".join(f"Der Hund {number} {'sieht die Männer ' * 8}.\n" for number in range(4000))
    page.set_input_files("#file", {"name": "lang.txt", "mimeType": "text/plain", "buffer": lines.encode()})
    page.wait_for_selector("#job:not([hidden]) progress[value]")


def test_a_file_has_progress_and_is_cancelled(opened: Callable[..., Any]) -> None:
    page = opened()
    choose_long_file(page)
    assert page.get_by_role("progressbar", name="lang.txt").count() == 1
    page.wait_for_selector('#job-count:text-matches("^[1-9][0-9,]* of 4,000 sentences$")')
    assert 0 <= page.evaluate("document.querySelector('#job-bar').value") < 100
    assert page.text_content("#status") == "Translating …"
    with page.expect_request(lambda request: request.method == "DELETE") as deleted:
        page.get_by_role("button", name="Cancel").click()
    assert deleted.value.response().ok
    found = page.request.get(deleted.value.url, headers={"authorization": f"Bearer {KEY}"})
    assert found.json()["state"] == "cancelled"
    page.wait_for_selector('#status:text-is("Stopped.")')
    assert page.is_hidden("#job") and translated(page, "A dog")


def test_languages_are_swapped_and_detected(opened: Callable[..., Any]) -> None:
    page = opened()
    assert (page.input_value("#from"), page.input_value("#to")) == ("en", "de")
    page.click("#swap")
    assert (page.input_value("#from"), page.input_value("#to")) == ("de", "en")
    page.select_option("#from", "auto")
    assert page.is_disabled("#swap")
    page.select_option("#to", "de")
    translated(page, "The dog runs across the field and sees two men .")
    assert "English" in page.text_content("#status")


def test_it_is_stopped(opened: Callable[..., Any]) -> None:
    page = opened()
    page.eval_on_selector("#source", "node => { node.value = 'Der Hund sieht die Männer .\\n'.repeat(3000); }")
    page.click("#translate")
    page.keyboard.press("Escape")
    page.wait_for_selector('#status:text-is("Stopped.")')
    assert translated(page, "A dog")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_cut_off_and_all_can_be_read(opened: Callable[..., Any], width: int, scheme: str) -> None:
    page = opened(width=width, color_scheme=scheme)
    translated(page, "A dog runs across the field .\n" + "ungebrochen" * 20)
    wide = (
        "() => [...document.querySelectorAll('main *')].filter((n) => n.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert page.evaluate(f"({wide})().map((n) => n.className || n.tagName)") == []
    choose_long_file(page)
    assert page.evaluate(f"({wide})().map((n) => n.className || n.tagName)") == []
    page.keyboard.press("Escape")
    colours = "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]; }"
    ink, paper = (sum(map(int, text[4:-1].split(","))) for text in page.evaluate(colours))
    assert (ink > paper) == (scheme == "dark") and abs(ink - paper) > 400


def test_what_can_be_asked_is_a_page(new_page: Callable[..., Any], url: str) -> None:
    page = new_page(allowed=url)
    page.goto(f"{url}docs")
    assert "POST /v1/translate" in page.text_content("main")
