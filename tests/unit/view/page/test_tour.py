"""The texts of the tour: the same in all languages, with a text for every card and no number."""

import json
import re
from typing import Any

import pytest

from headwise.evaluate.pages.document import asset, catalogues, inspection_page

TEXTS: dict[str, Any] = json.loads(catalogues("tour"))
LANGUAGES = list(TEXTS)
PLACEHOLDER = re.compile(r"\{(\w+)\}")
CARD = re.compile(r'^  "?([\w-]+)"?: \{\n    (?:fits|async show)', re.M)


def leaves(texts: Any, path: str = "") -> dict[str, str]:
    """Each text by its path."""
    if isinstance(texts, str):
        return {path: texts}
    items = texts.items() if isinstance(texts, dict) else enumerate(texts)
    return {name: text for key, inner in items for name, text in leaves(inner, f"{path}/{key}").items()}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_a_translation_has_the_keys_and_placeholders_of_the_original(language: str) -> None:
    original, translated = leaves(TEXTS[LANGUAGES[0]]), leaves(TEXTS[language])
    assert translated.keys() == original.keys()
    for path, text in translated.items():
        assert set(PLACEHOLDER.findall(text)) == set(PLACEHOLDER.findall(original[path])), path


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_number_is_written_into_a_text(language: str) -> None:
    texts = {path: PLACEHOLDER.sub("", text) for path, text in leaves(TEXTS[language]).items()}
    assert [path for path, text in texts.items() if re.search(r"(?<!\bT)\d", text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_answer_stands_within_a_sentence(language: str) -> None:
    options = [option for card in TEXTS[language]["cards"].values() for option in card.get("options", ())]
    assert [option for option in options if option.endswith((".", "!"))] == []


def test_every_card_has_texts_and_every_text_a_card() -> None:
    cards = CARD.findall(asset("cards_attention.js") + asset("cards_writing.js"))
    assert cards == list(TEXTS["en"]["cards"])
    assert 20 <= len(cards) <= 30


def test_a_page_has_the_texts_of_all_languages() -> None:
    found = re.search(r'<script id="tour" type="application/json">(.*?)</script>', inspection_page([]), re.S)
    assert found and json.loads(found[1]) == TEXTS
