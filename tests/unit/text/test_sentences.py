"""When two sentences are the same."""

import numpy as np
import pytest

from headwise.text.files.scripts import latin_length
from headwise.text.files.sentences import EMPTY, normalize_sentence, pair_keys, sentence_key

SAME = [
    ("A dog runs.", "a  dog runs"),
    ("Don't!", "dont"),
    ("CAFÉ", "cafe\u0301"),
    ("Straße", "STRASSE"),
    ("\uff46\uff55\uff4c\uff4c\u3000width", "full width"),
    ("犬が 走る。", "犬が走る"),
    ("snake_case", "snakecase"),
    ("« Oui\u00a0! »", "oui"),
]
OTHERS = [("A dog runs.", "A dog ran."), ("कि", "की"), ("3", "4"), ("?", "!"), ("", "?")]
KEYS, PAIR_KEYS = [351978283130838386, 12850736574072069810], [4522410275139603566, 17235469408947973867]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_case_punctuation_and_blanks_are_ignored(one: str, other: str) -> None:
    assert normalize_sentence(one) == normalize_sentence(other)
    assert sentence_key(one) == sentence_key(other) != EMPTY


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_letters_digits_and_combining_marks_count(one: str, other: str) -> None:
    assert sentence_key(one) != sentence_key(other)


def test_letters_of_chinese_and_japanese_count_more() -> None:
    assert [latin_length(text) for text in ("", "ab c", "漢字", "かな", "漢 a")] == [0, 4, 6, 3, 5]


def test_only_a_blank_line_is_empty() -> None:
    assert [sentence_key(text) == EMPTY for text in ("", " \t\u00a0", "...", "_")] == [True, True, False, False]


def test_keys_are_a_file_format() -> None:
    """They decide the splits of resumed runs."""
    assert [sentence_key(text) for text in ("A dog runs.", "Ein Hund läuft.")] == KEYS
    assert pair_keys(*np.array([[1, 2], [2, 1]], np.uint64)).tolist() == PAIR_KEYS
