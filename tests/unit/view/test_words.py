"""Words of pieces: those of `str.split`, whatever the tokenizer made of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models

from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.record import Word
from headwise.view.words import words_spelled


def spelled(tokenizer: Tokenizer, text: str) -> list[tuple[str, list[str]]]:
    tokens = [*tokenizer.encode(text), tokenizer.eos_id]
    pieces = tokenizer.pieces(tokens)
    return [(word.text, pieces[word.start : word.stop]) for word in words_spelled(tokenizer, tokens)]


def test_pieces_of_words(tokenizer: Tokenizer) -> None:
    assert spelled(tokenizer, "Der Hund.") == [("Der", ["▁Der"]), ("Hund.", ["▁Hund", "."])]


def test_a_declared_token_is_a_word_and_marks_are_none(tokenizer: Tokenizer) -> None:
    assert spelled(tokenizer, "<2de>Der Hund")[:2] == [("<2de>", ["<2de>"]), ("Der", ["▁Der"])]
    assert [word.declared for word in words_spelled(tokenizer, tokenizer.encode("<2de>Der Hund"))] == [1, 0, 0]
    assert words_spelled(tokenizer, [tokenizer.eos_id]) == []


def test_a_lone_blank_counts_with_the_word_after_it(tokenizer: Tokenizer) -> None:
    """No merge has seen this script: the blank and each byte is a piece of its own."""
    (word,) = spelled(tokenizer, "日")
    assert word == ("日", ["▁", "<0xE6>", "<0x97>", "<0xA5>"])


def test_bytes_that_are_no_character(tokenizer: Tokenizer) -> None:
    broken = tokenizer.encode("日")[:-1]
    assert words_spelled(tokenizer, broken) == [Word("\ufffd", 0, 3)]


@given(st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=30))
def test_words_are_those_between_blanks(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    found = words_spelled(tokenizer, tokens)
    assert [word.text for word in found] == tokenizer.decode(tokens).split()
    stops = [0, *(word.stop for word in found)]
    assert [word.start for word in found] == stops[:-1]  # nothing between words is left over


def test_pieces_of_sentencepiece() -> None:
    vocab = {name: i for i, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "▁un", "do", "▁é", "<0xC3>", "<0xA9>"])}
    tokenizer = Tokenizer(Backend(models.WordLevel(vocab, unk_token="<unk>")))
    assert words_spelled(tokenizer, [4, 5, 6, 7, 8, 2]) == [Word("undo", 0, 2), Word("éé", 2, 5)]


def test_one_piece_of_two_words() -> None:
    vocab = {name: i for i, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "▁of▁the", "m"])}
    tokenizer = Tokenizer(Backend(models.WordLevel(vocab, unk_token="<unk>")))
    assert words_spelled(tokenizer, [4, 5]) == [Word("of", 0, 1), Word("them", 0, 2)]


@pytest.mark.parametrize("text", ["a\u00a0b", "a\u3000b", "a\tb", "  a  b  "])
def test_every_kind_of_blank_divides(tokenizer: Tokenizer, text: str) -> None:
    assert [word for word, _ in spelled(tokenizer, text)] == ["a", "b"]
