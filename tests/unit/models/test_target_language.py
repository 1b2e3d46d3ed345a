"""The pair of `--languages` chooses the target language of a model that has several, or is refused."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.cli.documents import _for_languages
from headwise.config.data import TranslationData
from headwise.documents.reading import parse_document
from headwise.errors import UserError
from headwise.models.translation.target_language import language_arguments, tagged_targets
from headwise.text.tokens.tokenizer import Tokenizer

TAGS = ("<2de>", "<2pt_BR>", "<2fr>", "<term>")


def model(*tags: str, tokenizer: Any = None) -> Any:
    """A model whose `between` returns its arguments."""
    tokenizer = tokenizer or Tokenizer.train(["A dog runs."] * 3, TranslationData(vocab_size=300), tags)
    about = {"tokenizer": tokenizer, "languages": None, "path": Path("model")}
    return SimpleNamespace(**about, between=lambda **languages: languages)


def test_the_target_is_a_token_of_the_model() -> None:
    several = model(*TAGS)
    assert sorted(tagged_targets(several)) == ["de", "fr", "pt_BR"]
    for wanted, found in {"de": "de", "pt_BR": "pt_BR", "pt": "pt_BR", "de-AT": "de", "fra": "fr"}.items():
        assert language_arguments(several, "en", wanted) == {"target_language": found}
    with pytest.raises(UserError, match=r"'it'.*translates into .*fr"):
        language_arguments(several, "en", "it")
    assert language_arguments(model("<term>"), "en", "it") == language_arguments(object(), "en", "it") == {}
    marian = model(tokenizer=SimpleNamespace(declared={7: ">>fra<<", 8: ">>deu<<", 9: ">>id<<"}))
    assert language_arguments(marian, "en", "de") == {"target_language": "deu"}


def test_languages_of_a_document_choose_the_target() -> None:
    document = parse_document("a.html", b"<p>A dog</p>")

    def chosen(given: dict[str, str], languages: tuple[str, str], model: Any, then: str = "") -> Any:
        named = {"source_language": "", "target_language": "", **given}
        return _for_languages(model, document, Namespace(input="a.html", languages=languages, then=then, **named))

    assert chosen({}, ("en", "de"), model(*TAGS)) == {"target_language": "de"}
    assert chosen({"target_language": "fr"}, ("en", "de"), model(*TAGS))["target_language"] == "fr"
    with pytest.raises(UserError, match="'it'"):
        chosen({}, ("en", "it"), model(*TAGS))
    with pytest.raises(UserError, match=r"a\.html.*--target-language.*fr"):
        chosen({}, ("", ""), model(*TAGS))
    assert not any(chosen({}, ("en", "it"), model()).values())
    document = parse_document("a.txt", b"<2de> A dog\n")  # which says it itself
    assert not any(chosen({}, ("", ""), model(*TAGS)).values())
    pivot = chosen({}, ("en", "de"), SimpleNamespace(first="x", second=model(*TAGS)), "m")
    assert (pivot.first, pivot.second) == ("x", {"target_language": "de"})
