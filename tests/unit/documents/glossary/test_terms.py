"""Terms in texts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.documents.glossary.terms import Glossary, Term, contains_term
from headwise.errors import UserError


def found(text: str, *terms: tuple[str, str]) -> list[tuple[str, str]]:
    glossary = Glossary(Term(*term) for term in terms)
    return [(text[match.start : match.end], match.term.target) for match in glossary.matches(text)]


@pytest.mark.parametrize(
    ("text", "terms", "expected"),
    [
        ("a dog, dogs, hotdog, dog.", [("dog", "Hund")], [("dog", "Hund"), ("dog", "Hund")]),
        ("a black-and-white dog", [("black-and-white", "schwarzweiß")], [("black-and-white", "schwarzweiß")]),
        ("Dog DOG dog", [("dog", "Hund")], [("Dog", "Hund"), ("DOG", "Hund"), ("dog", "Hund")]),
        ("it is IT", [("IT", "EDV")], [("IT", "EDV")]),
        ("In March we march", [("March", "März"), ("march", "gehen")], [("March", "März"), ("march", "gehen")]),
        ("a hot dog stand", [("dog stand", "A"), ("a hot dog", "B"), ("hot", "C")], [("a hot dog", "B")]),
        ("x a b c d", [("a b", "2"), ("b c d", "3")], [("b c d", "3")]),
        ("two  words\there", [("two words here", "drei")], [("two  words\there", "drei")]),
        ("C++ and C#", [("C++", "C++"), ("C", "Do")], [("C++", "C++"), ("C", "Do")]),
        ("我喜歡機器翻譯。", [("機器翻譯", "machine translation")], [("機器翻譯", "machine translation")]),
        ("हिन्दी में", [("हि", "x"), ("न", "y"), ("में", "in")], [("में", "in")]),  # vowels are marks
        ("nothing", [], []),
    ],
)
def test_where_terms_stand(text: str, terms: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    assert found(text, *terms) == expected


def test_a_tie_between_two_long_ones_goes_to_the_first() -> None:
    assert found("x a b c", ("a b", "1"), ("b c", "2")) == [("a b", "1")]


def test_two_translations_of_a_term_are_refused_and_the_same_line_twice_is_not() -> None:
    Glossary([Term("dog", "Hund", "a"), Term("dog", "Hund", "b")])
    with pytest.raises(UserError, match=r"^g.tsv: line 2: 'dog'.*'Hund'.*'Köter'"):
        Glossary([Term("dog", "Hund"), Term("dog", "Köter", "g.tsv: line 2")])
    with pytest.raises(UserError, match="source and target need words"):
        Glossary([Term(" ", "Hund")])


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("Der Hund", "Hund", True),
        ("Des Hundes", "Hund", True),
        ("Schäferhund", "hund", False),
        ("Berlin  Mitte", "Berlin Mitte", True),
        ("用機器翻譯", "機器", True),
        ("(C++)", "C++", True),
    ],
)
def test_what_holds_a_term(text: str, target: str, expected: bool) -> None:
    assert contains_term(text, target) is expected


@given(st.lists(st.sampled_from(["a", "b", "c", "ab", "A"]), max_size=12))
def test_matches_do_not_overlap_and_are_in_order(words: list[str]) -> None:
    text = " ".join(words)
    matches = Glossary([Term("a", "1"), Term("a b", "2"), Term("b c a", "3"), Term("ab", "4")]).matches(text)
    assert all(one.end <= other.start for one, other in pairwise(matches))
    assert sum(len(text[m.start : m.end].split()) for m in matches) <= len(words)
    assert sum(word.lower() in ("a", "ab") for word in words) <= sum(
        text[m.start : m.end].lower().split().count("a") + (m.term.target == "4") for m in matches
    )
