"""The pages in German: all that can be seen and is read aloud is in the German catalogue, but for data of a model."""

import json
import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from browser.axe import violations
from browser.test_page import SRC, TGT, record_of, trace_of
from browser.test_walk import drawn
from browser.walked import page_of, page_writer
from playwright.sync_api import expect

import headwise
from headwise.evaluate.pages.document import catalogues, inspection_page
from headwise.models.load import translation_folder
from headwise.serve.page import translation_page
from headwise.serve.web.page import export_page
from headwise.view.page.contents import page_contents

TEXTS: dict[str, dict[str, str]] = json.loads(catalogues("interface"))
PLACEHOLDER = re.compile(r"\{\w+\}")
ADDRESS = "http://headwise.test/"
LANGUAGES = [{"code": "en", "name": "English", "targets": ["de"]}, {"code": "de", "name": "German", "targets": ["en"]}]
SENTENCE = {
    "source": "A dog",
    "text": "Ein Hund",
    "alternatives": [{"text": "Der Hund"}],
    "alignment": [[0, 0], [1, 1]],
}
ANSWER = {"source": "en", "translations": [{"text": "Ein Hund", "sentences": [SENTENCE]}]}
# Elements with data: texts of the model, names of keys and languages; and what is not shown.
DATA = ".spoken, [dir=auto], bdi, svg, .spelled, .words, .alternatives, kbd, select, h1, noscript, script"
SHOWN = """(data) => {
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const said = node.closest("math") ? [] : ["aria-label", "title", "placeholder", "alt"];
    for (const name of said) found.push(node.getAttribute(name));
    if (!node.closest(data)) for (const child of node.childNodes) if (child.nodeType === 3) found.push(child.data);
  }
  return [...new Set(found.map((text) => text?.trim()))].filter((text) => text && /\\p{L}/u.test(text));
}"""


def foreign(page: Any, language: str = "de", allowed: Sequence[str] = (), data: str = DATA) -> list[str]:
    """What a page shows or says that is no text of the catalogue."""
    catalogue = TEXTS[language]
    boxes = [text.split("\n") for key, text in catalogue.items() if key.startswith("figure-")]
    joined = [" ".join(lines).replace("- ", "-") for lines in boxes]
    labels = [
        catalogue["figure-box"].format(stack=catalogue[f"stack-{stack}"], box=box)
        for stack in ("encoder", "decoder")
        for box in joined
    ]
    known = {*allowed, *labels, *chain.from_iterable(boxes)}

    def filled(text: str) -> str:
        """A pattern; a number with plural forms is written by one of them."""

        def value(name: re.Match[str]) -> str:
            forms = [catalogue[form] for n in ("one", "other") if (form := f"{name[1]}.{n}") in catalogue]
            return f"(?:{'|'.join(map(filled, forms))})" if forms else ".*"

        return re.sub(r"\\\{(\w+)\\\}", value, re.escape(text))

    one = "|".join(filled(text) for text in catalogue.values() if re.search(r"[^\W\d_]", PLACEHOLDER.sub("", text)))
    pattern = f"(?:{one})(?: (?:{one}))*"
    return [text for text in page.evaluate(SHOWN, data) if text not in known and not re.fullmatch(pattern, text, re.S)]


# Of a walk also the figure; formulas are the same in all languages, and tokens are data.
WALK_DATA = DATA.replace(" svg,", "") + ", math, .terms tbody, .formula .numbers, .source, dialog"
MATHEMATICS = re.compile(r"(?:exp|max|cos|sin|relu|gelu_tanh|gelu|silu|d_model|[μσγβWpos]|(?<=\d)e)+")
ENGLISH = re.compile(
    r"\b(the|of|and|is|this|its|rows?|layer|head|columns?|weights?|query|key|source|hidden|sum|token|add|here)\b"
)


def foreign_in_walk(page: Any, allowed: Sequence[str] = ()) -> list[str]:
    """The same in a walk, and what is English in a text whose placeholders were filled."""
    found = foreign(page, "de", allowed, WALK_DATA)
    shown = page.evaluate(SHOWN, WALK_DATA)
    assert [text for text in shown if re.search(r"\d\.\d", text)] == [], "numbers have a comma"
    return [text for text in found if re.search(r"[^\W\d_]", MATHEMATICS.sub("", text))] + [
        text for text in shown if text not in allowed and ENGLISH.search(text)
    ]


@pytest.fixture
def served(new_page: Callable[..., Any]) -> Callable[..., Any]:
    """Opens the page of a server that gives always the same answer."""

    def open_page(address: str = "", **options: Any) -> Any:
        page = new_page(allowed=ADDRESS, **options)
        html = translation_page(LANGUAGES, needs_key=True, has_jobs=True)
        page.route(f"{ADDRESS}**", lambda route: route.fulfill(body=html, content_type="text/html"))
        page.route(f"{ADDRESS}v1/translate", lambda route: route.fulfill(json=ANSWER))
        page.goto(f"{ADDRESS}{address}")
        return page

    return open_page


def test_the_page_of_a_server_is_in_the_language_of_the_browser(served: Callable[..., Any]) -> None:
    page = served(locale="de-AT")
    page.locator("summary").click()
    page.fill("#source", "A dog")
    page.click("#translate")
    page.wait_for_selector("#details:not([hidden])")
    assert page.get_attribute("html", "lang") == "de"
    assert page.locator("#from option").all_text_contents() == [TEXTS["de"]["detect"], "Englisch", "Deutsch"]
    assert foreign(page, allowed=["API"]) == []
    assert violations(page) == []


REPORT = {
    "units": {"all": 9, "translated": 9, "left_open": 0, "kept": 0},
    "warnings": {"other numbers": 3, "left untranslated: chooses among texts (ICU)": 2, "improbable": 1, "no words": 1},
    "not_translated": {},
}


def choose_file(page: Any) -> None:
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"A dog runs .\n"})


@pytest.mark.parametrize("language", TEXTS)
def test_quality_warnings_are_in_the_language_of_the_page(served: Callable[..., Any], language: str) -> None:
    page, texts = served(f"?language={language}"), TEXTS[language]
    progress = {"sentences": 1, "translated": 1, "percent": 100}
    page.route(f"{ADDRESS}v1/documents", lambda route: route.fulfill(json={"id": "1"}))
    page.route(
        f"{ADDRESS}v1/documents/1", lambda route: route.fulfill(json={"id": "1", "state": "done", "progress": progress})
    )
    page.route(f"{ADDRESS}v1/documents/1/report", lambda route: route.fulfill(json=REPORT))
    choose_file(page)
    page.wait_for_selector("#status .figures")
    kinds = ("other-numbers", "left-untranslated-chooses-among-texts-ICU", "improbable")
    listed = "; ".join([*(texts[f"warning-{kind}"] for kind in kinds), "…"])
    assert f"({listed})" in page.text_content("#status .figures")


@pytest.mark.parametrize("language", TEXTS)
def test_errors_of_the_server_begin_in_the_language_of_the_page(served: Callable[..., Any], language: str) -> None:
    page, texts = served(f"?language={language}", expected="400"), TEXTS[language]
    answer: dict[str, str] = {}
    page.route(f"{ADDRESS}v1/documents", lambda route: route.fulfill(status=400, json=answer))
    for error, key, rest in (
        ("Invalid request: file format not supported; known: .txt", "format-unsupported", ".txt"),
        ("Invalid request: glossary has 3 terms", "invalid-request", "glossary has 3 terms"),
        ("Invalid API key", "invalid-key", ""),
        ("a.txt: not a text {file}", "server-reports", "a.txt: not a text {file}"),
    ):
        answer["error"] = error
        choose_file(page)
        expect(page.locator("#status.error")).to_have_text(texts[key].replace("{error}", rest))


def test_a_language_in_the_address_wins_and_one_without_texts_is_english(served: Callable[..., Any]) -> None:
    for address, locale, language in (
        ("?language=fr", "de", "fr"),
        ("#language=es", "de", "es"),
        ("?language=xx", "de", "de"),
        ("", "ja", "en"),
    ):
        page = served(address, locale=locale)
        assert page.text_content("#translate") == TEXTS[language]["translate"]
        assert page.get_attribute("html", "lang") == page.input_value("#language") == language


def test_another_language_is_chosen_and_nothing_is_lost(served: Callable[..., Any]) -> None:
    page = served()
    page.fill("#source", "A dog")
    page.click("#translate")
    page.wait_for_selector("#details:not([hidden])")
    page.select_option("#to", "de")
    page.select_option("#language", "de")
    assert foreign(page, allowed=["API"]) == []
    assert (page.input_value("#source"), page.text_content("#output")) == ("A dog", "Ein Hund")
    page.reload()
    assert page.text_content("#translate") == TEXTS["de"]["translate"]


def test_the_exported_page_is_in_the_language_of_the_browser(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path
) -> None:
    export_page([translation_folder(model_paths["transformer"])], tmp_path / "page.html")
    page = new_page(locale="de-DE")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("#translate:not([disabled])", state="attached")
    assert foreign(page) == []
    page.fill("#source", "A dog runs across the field .")
    page.click("#translate")
    page.wait_for_selector("#guide")
    assert page.get_attribute("html", "lang") == "de"
    assert foreign(page) == []
    assert violations(page) == []
    page.click("#look")
    expect(page.locator(".walk-panel")).to_contain_text("die auf 8 Bit gerundet sind")
    assert foreign_in_walk(page) == []
    page.click(f"text={TEXTS['de']['walk-next']}")
    page.select_option("#language", "fr")
    page.wait_for_selector(f"#guide:text-is('{TEXTS['fr']['open-tour']}')")
    expect(page.locator(".walk-panel h2")).to_have_text(TEXTS["fr"]["step-position-codes"])
    page.click("#look")
    assert foreign(page, "fr", data=WALK_DATA) == []
    page.click("#guide")
    assert "language=fr" in page.url


@pytest.mark.parametrize(("language", "one", "more"), [("en", "word", "words"), ("fr", "mot", "mots")])
def test_a_number_chooses_the_form_of_its_noun(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path, language: str, one: str, more: str
) -> None:
    """Also beside another number, of seconds, whose form is that for its own."""
    export_page([translation_folder(model_paths["transformer"])], tmp_path / "page.html")
    page = new_page(locale=language)
    page.goto((tmp_path / "page.html").as_uri())
    for text, words in (("dog", f"1 {one}"), ("A dog", f"2 {more}")):
        page.fill("#source", text)
        page.click("#translate:not([disabled])")
        page.wait_for_function(
            "start => document.querySelector('#status').textContent.startsWith(start)", arg=f"{words} "
        )
        assert re.fullmatch(f"{words} (in|en) [\\d.,]+ second(e?s?)", page.text_content("#status"))


@pytest.mark.parametrize("family", ["transformer", "gpt2", "t5", "llama", "gpt_neox"])
def test_a_walk_is_in_the_language_of_the_browser(
    new_page: Callable[..., Any], model_paths: dict[str, Path], tmp_path: Path, family: str
) -> None:
    """Every step of every stack, with an account of its first cell and of a masked one."""
    if family == "transformer":
        path = tmp_path / "page.html"
        path.write_text(page_of(headwise.load(model_paths["transformer"])), encoding="utf-8")
    else:
        path = page_writer(tmp_path)(family)
    page = new_page(locale="de-DE")
    page.goto(f"{path.as_uri()}#view=walk")
    expect(page.locator(".walk-panel h2")).not_to_be_empty()
    for stack in ("encoder", "decoder") if family in ("transformer", "t5") else ("decoder",):
        page.evaluate("(stack) => { location.hash = `view=walk&stack=${stack}&cell=0,1`; }", stack)
        forth = page.get_by_role("button", name=TEXTS["de"]["walk-next"])
        while True:
            drawn(page)
            assert foreign_in_walk(page, ["a model"]) == [], page.locator(".walk-panel h2").inner_text()
            if forth.is_disabled():
                break
            forth.click()
            drawn(page)
            page.evaluate("() => { location.hash += '&cell=0,1'; }")
            expect(page.locator(".account")).not_to_have_attribute("data-cell", "")


VIEWS = ["lines", "matrix", "grid", "alignment", "beam", "probabilities"]


@pytest.mark.parametrize("view", VIEWS)
def test_the_views_are_in_the_language_of_the_browser(new_page: Callable[..., Any], tmp_path: Path, view: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(inspection_page([page_contents(record_of(SRC, TGT), trace_of(TGT), "toy")]), encoding="utf-8")
    page = new_page(locale="de-DE", width=390)
    page.goto(f"{path.as_uri()}#view={view}&layer=1&head=0&fix=q1")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("?")
    assert page.get_attribute("html", "lang") == "de"
    assert foreign(page, allowed=["toy"]) == []
    wide = "[...document.querySelectorAll('header *')].filter((n) => n.getBoundingClientRect().right > innerWidth + 1)"
    assert page.evaluate(f"{wide}.map((n) => n.className || n.tagName)") == []


@pytest.mark.parametrize("language", list(TEXTS))
def test_no_text_is_cut_off_on_a_phone(served: Callable[..., Any], language: str) -> None:
    page = served(f"?language={language}", width=360)
    page.locator("summary").click()
    wide = (
        "() => [...document.querySelectorAll('main *')].filter((n) => n.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert page.evaluate(f"({wide})().map((n) => n.id || n.tagName)") == []
