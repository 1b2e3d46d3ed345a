"""The text that the explorer and the exported page begin with: a sentence of the model's data on this machine."""

from pathlib import Path

import pytest

from headwise.config.data import TranslationData
from headwise.text.files.corpus import Corpus
from headwise.text.prepared.example import example_source
from headwise.text.prepared.prepared import prepare
from headwise.text.tokens.tokenizer import Tokenizer


@pytest.fixture
def key_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prepares sources as validation data and gives the key that a model's `config.json` would have."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))

    def prepared(sources: list[str]) -> str:
        path = tmp_path / "valid.tsv"
        path.write_text("".join(f"{source}\tx\n" for source in sources), encoding="utf-8")
        tokenizer = Tokenizer.train(["a b c d e f g h i j k l"] * 9, TranslationData(vocab_size=300))
        return prepare([Corpus((str(path),))], tokenizer, TranslationData(), progress=False, clean=False).key

    return prepared


def about(key: str) -> dict[str, object]:
    return {"corpus": {"valid_key": key}}


def test_the_first_sentence_of_a_fitting_length(key_of) -> None:
    key = key_of(["a b", "a b c  d e f g h", "h g f e d c b a", "a b c d e f g h i j k l " * 9])
    assert example_source(about(key)) == "a b c d e f g h"


def test_else_the_nearest_to_it(key_of) -> None:
    assert example_source(about(key_of(["a", "a b c", "a b c d e f g h i j k l " * 9]))) == "a b c"


def test_nothing_where_the_data_are_gone(key_of) -> None:
    key = key_of(["a b c d e f g h"])
    assert example_source(about(key)) == "a b c d e f g h"
    assert example_source(about(key[::-1])) == ""
    assert example_source({}) == example_source({"corpus": {}}) == example_source({"corpus": None}) == ""


def test_a_key_names_nothing_outside_the_cache(key_of, tmp_path: Path) -> None:
    key = key_of(["a b c d e f g h"])
    (tmp_path / "cache" / key).rename(tmp_path / "elsewhere")
    assert example_source(about("../elsewhere")) == ""
