"""The texts of the interface: the same keys and placeholders in all languages, and each text is used."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources

import pytest

from headwise.documents import fill, quality_checks, segments, unit
from headwise.evaluate.pages.document import catalogues

TEXTS: dict[str, dict[str, str]] = json.loads(catalogues("interface"))
PLACEHOLDER = re.compile(r"\{\w+\}")
# A key is an argument, a part of a template such as `view-${name}`, a quoted name, or an attribute.
ASKED = re.compile(r"""(?<![.\w])(?:t|say)\(["`]([^"`]+)["`]|\bdata-t(?:-[\w-]+)?="([^"]+)"|\{\{([\w-]+)\}\}""")
FORM = re.compile(r"\.(one|other)$")  # at the end of the key of a plural form
QUOTED = re.compile(r'"([\w-]+)"')


def sources() -> Iterator[str]:
    """The scripts and the HTML of all pages with texts."""
    for package in ("headwise.view.page", "headwise.serve", "headwise.serve.web"):
        for file in resources.files(package).joinpath("assets").iterdir():
            if file.name.endswith((".js", ".html")):
                yield file.read_text(encoding="utf-8")


@pytest.mark.parametrize("language", list(TEXTS)[1:])
def test_a_translation_has_the_keys_and_placeholders_of_the_original(language: str) -> None:
    """Lists the keys that a new language lacks."""
    original, translated = TEXTS["en"], TEXTS[language]
    assert [key for key in original if key not in translated] == []
    assert list(translated) == list(original)
    for key, text in translated.items():
        assert text.strip() == text and text, key
        assert set(PLACEHOLDER.findall(text)) == set(PLACEHOLDER.findall(original[key])), key


@pytest.mark.parametrize("language", TEXTS)
def test_a_count_in_a_text_has_both_forms(language: str) -> None:
    """ "1 words" is not written: the number of things stands beside a noun only where a plural form is chosen."""
    texts = TEXTS[language]
    forms = Counter(FORM.sub("", key) for key in texts if FORM.search(key))
    assert set(forms.values()) == {2} and not forms.keys() & texts.keys()
    assert [key for key, text in texts.items() if FORM.search(key) and "{count}" not in text] == []
    beside = [key for key, text in texts.items() if "{count} " in text and not FORM.search(key)]
    # More tokens than a model reads; rotated dimensions, which come in pairs.
    assert sorted(beside) == ["cell-not-rotated", "long-text"]


def test_every_quality_warning_has_a_text() -> None:
    """The texts of warnings are in the modules that give them, as constants; other constants there are of `unit`."""
    named = [item for module in (fill, quality_checks, segments) for item in vars(module).items()]
    texts = [text for name, text in named if name.isupper() and isinstance(text, str) and not hasattr(unit, name)]
    warnings = {text for text in texts if re.match("[a-z]", text)}
    assert {fill.TOO_LONG, segments.GUESSED, quality_checks.NUMBERS} < warnings
    keys = {f"warning-{'-'.join(re.findall(r'[A-Za-z]+', text))}": text for text in warnings}
    assert {key: text for key, text in TEXTS["en"].items() if key.startswith("warning-")} == keys


def test_every_text_is_used_and_every_text_that_is_asked_for_exists() -> None:
    whole = "\n".join(sources())
    asked = {next(filter(None, groups)) for groups in ASKED.findall(whole)}
    names = ("data", "title", "style", "policy", "body", "script", "tour", "library", "models", "worker", "interface")
    others = {*names}  # of templates
    keys = {FORM.sub("", key) for key in TEXTS["en"]} - {"language"}  # the name of the language, in the menu
    patterns = {one: re.compile(re.sub(r"\\\$\\\{.*?\\\}", r"[\\w-]+", re.escape(one))) for one in asked - others}
    assert [one for one, pattern in patterns.items() if not any(map(pattern.fullmatch, keys))] == []
    used = set(QUOTED.findall(whole))
    used |= {name[1:-1] for text in TEXTS["en"].values() for name in PLACEHOLDER.findall(text)}  # numbers with a noun
    assert [key for key in sorted(keys - used) if not any(one.fullmatch(key) for one in patterns.values())] == []
