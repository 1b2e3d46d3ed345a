"""Files of word links, errors, and the words of tokens."""

from pathlib import Path

import pytest

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.text.files.alignment import words_of_tokens
from headwise.text.files.links import GoldLinks, check_links, format_links, read_gold, read_links
from headwise.text.tokens.tokenizer import Tokenizer


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_gold_links_are_sure_or_possible(tmp_path: Path) -> None:
    gold = read_gold(write(tmp_path / "gold", "0-0 1p1 12-3\n\n2p0\n"))
    sure = frozenset({(0, 0), (12, 3)})
    assert gold == [
        GoldLinks(sure, sure | {(1, 1)}),
        GoldLinks(frozenset(), frozenset()),
        GoldLinks(frozenset(), frozenset({(2, 0)})),
    ]


def test_links_survive_the_round_trip(tmp_path: Path) -> None:
    links = [frozenset({(10, 0), (2, 1), (2, 0)}), frozenset[tuple[int, int]]()]
    text = "".join(f"{format_links(pair)}\n" for pair in links)
    assert text == "2-0 2-1 10-0\n\n"
    assert read_links(write(tmp_path / "links", text)) == links


@pytest.mark.parametrize("link", ["0:0", "a-b", "-1-0", "1-", "0-0-0", "²-1"])
def test_a_malformed_link_is_reported_with_its_line(tmp_path: Path, link: str) -> None:
    with pytest.raises(UserError, match=rf"line 2: '{link}'.*not"):
        read_gold(write(tmp_path / "bad", f"0-0\n1-1 {link}\n"))


def test_possible_links_are_for_gold_only(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"line 1: '0p1'.*not.*only"):
        read_links(write(tmp_path / "links", "0-0 0p1\n"))


@pytest.mark.parametrize(
    ("link", "message"), [((2, 0), "link 2-0 is out of range"), ((0, 3), "2 source and 3 target words")]
)
def test_links_out_of_range(link: tuple[int, int], message: str) -> None:
    check_links("f", [{(1, 2)}], ["a b"], ["c d  e "])
    with pytest.raises(UserError, match=f"f: line 1: .*{message}"):
        check_links("f", [{link}], ["a b"], ["c d  e "])


def test_links_of_other_pairs() -> None:
    with pytest.raises(UserError, match="f has 1 line, but there are 2 pairs"):
        check_links("f", [set()], ["a", "b"], ["c", "d"])


@pytest.mark.parametrize("text", ["a dog , runs", "  a\tdog\u00a0,  runs ", "日本 dog 😀😀 x", "¨a ﬁ dog", "", "  "])
@pytest.mark.parametrize("normalization", ["nfc", "nfkc"])
def test_tokens_spell_their_words(text: str, normalization: str) -> None:
    tokenizer = Tokenizer.train(["a dog runs"], TranslationData(vocab_size=270, normalization=normalization))
    ids, words = words_of_tokens(tokenizer, text)
    assert ids == tokenizer.encode(text)
    spelled = [
        tokenizer.decode([token for token, word in zip(ids, words, strict=True) if word == n])
        for n in range(len(text.split()))
    ]
    assert ["".join(word.split()) for word in spelled] == [
        "".join(tokenizer.decode(tokenizer.encode(word)).split()) for word in text.split()
    ]


def test_a_blank_alone_belongs_to_the_word_after_it() -> None:
    tokenizer = Tokenizer.train(["a dog runs"] * 2, TranslationData(vocab_size=270))
    ids, words = words_of_tokens(tokenizer, "a ! ")
    assert tokenizer.pieces(ids) == ["▁a", "▁", "!", "▁"]
    assert words.tolist() == [0, 1, 1, -1]
