"""The word cache gives the same as the library, or None."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwise.config.data import TranslationData
from headwise.text.files.words import LAST, PUNCTUATION, cut
from headwise.text.tokens.tokenizer import Tokenizer

LINES = ["A dog runs across the field .", "Zwei Männer überqueren 12 Straßen!!", "Собака бежит… «по» полю"] * 30
PLAIN = st.text(st.sampled_from("".join(map(chr, range(0x20, LAST + 1))) + PUNCTUATION + "ab  ..,12"), max_size=40)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(LINES, TranslationData(subword=request.param, vocab_size=420), special=["<2de>"])


def by_library(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.backend.encode(text, add_special_tokens=False).ids


@given(st.one_of(PLAIN, st.text(max_size=30)))
@example("")
@example(" ")
@example("a  b ...  12,5 %% ²½ x\u00ad\u00a0y")
@example("e\u0301 \u0344 \u0387 \u037a \u0390")
@example("<2de> dog</s>")
@example("a\tb\nc\x1cd")
def test_the_cache_matches_the_library(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == by_library(tokenizer, text)
    assert tokenizer.encode_batch([text, "dog", text]) == [by_library(tokenizer, t) for t in (text, "dog", text)]


def test_every_character_alone_and_among_others(tokenizer: Tokenizer) -> None:
    for code in (*range(LAST + 40), *map(ord, PUNCTUATION)):
        for text in (chr(code), f"ab{chr(code)}{chr(code)}c"):
            assert tokenizer.encode(text) == by_library(tokenizer, text), hex(code)


def test_most_text_of_european_languages_is_plain(tokenizer: Tokenizer) -> None:
    assert all(cut(line) for line in LINES)
    assert cut(unicodedata.normalize("NFD", "Männer")) is None
    assert cut("日本語") is None
    assert tokenizer.from_table("<2de> dog") is None
    assert tokenizer.from_table("a dog") is not None


def test_a_full_cache_is_cleared(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.text.files.words.REMEMBERED_WORDS", 2)
    for word in ["one", "two", "three", "four"]:
        assert tokenizer.encode(word) == by_library(tokenizer, word)
    assert tokenizer.table is not None
    assert len(tokenizer.table.ids) <= 2


def test_other_tokenizers_have_no_cache(tokenizer: Tokenizer) -> None:
    assert tokenizer.table is not None
    for changed in (
        TranslationData(lowercase=True, vocab_size=300),
        TranslationData(normalization="nfkc", vocab_size=300),
    ):
        assert Tokenizer.train(LINES, changed).table is None
