"""Codes come through a translation: found, marked, put back."""

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import UserError
from headwise.localisation.inline_tree import bare_text
from headwise.localisation.markers import MARKERS, pair_with_markers, restore_copies, restore_markers, with_markers
from headwise.localisation.placed_codes import place_codes
from headwise.localisation.placeholders import with_codes
from headwise.localisation.sentences import split_into_sentences
from headwise.localisation.unit import Code, codes_of, join_parts, plain

TEXTS = st.lists(
    st.text(st.sampled_from("ab .\n"), min_size=1, max_size=8)
    | st.sampled_from([Code("{n}"), Code("<b>", inline=True)]),
    max_size=8,
)


@pytest.mark.parametrize(
    "text,markup,codes",
    [
        ("%s has %1$d of %(all)5.2f", "", ["%s", "%1$d", "%(all)5.2f"]),
        ("100% of it, 5% off, 3%d", "", ["%d"]),
        ("100%% and %name%", "", ["%%", "%name%"]),
        ("{} {0} {user.name!r:>10} {{x}} ${y}", "", ["{}", "{0}", "{user.name!r:>10}", "{{x}}", "${y}"]),
        ("a {b c} d", "", []),
        ("See https://a.b/c?d=1. Or <a@b.org>!", "", ["https://a.b/c?d=1", "a@b.org"]),
        ('<a href="x">y</a> &amp; 2 < 3 &copy;', "", ['<a href="x">', "</a>", "&amp;", "&copy;"]),
        ("call :func:`f` with ``x`` [1]_ |v|::", "rst", [":func:`f`", "``x``", "[1]_", "|v|", "::"]),
        ("see `the page <https://a.b>`_ or `here`_", "rst", ["`", " <https://a.b>`_", "`", "`_"]),
        ("see [the `x` page](u) and ![pic](v)", "markdown", ["[", "`x`", "](u)", "![", "](v)"]),
    ],
)
def test_what_must_survive_is_found(text: str, markup: str, codes: list[str]) -> None:
    parts = with_codes((text,), markup)
    assert [code.text for code in codes_of(parts)] == codes
    assert plain(parts) == text


def test_marks_come_back_wherever_they_went_and_are_missed_where_one_is_lost() -> None:
    parts = with_codes(("Delete %d of {n} files",))
    assert with_markers(parts) == "Delete ⓵ of ⓶ files"
    found = restore_markers("Von ⓶ Dateien ⓵ löschen", codes_of(parts))
    assert found is not None
    assert plain(found) == "Von {n} Dateien %d löschen"
    assert Counter(codes_of(parts)) == Counter(codes_of(found))
    for text in ("Von ⓶ Dateien", "⓵ ⓶ ⓶", "⓵ ⓶ ⓷", ""):
        assert restore_markers(text, codes_of(parts)) is None


def test_a_text_with_marks_of_its_own_or_too_many_codes_is_left_alone() -> None:
    assert with_markers(("step ⓵", Code("{n}"))) is None
    assert with_markers(tuple(Code("{n}") for _ in range(len(MARKERS) + 1))) is None


def test_a_pair_shares_marks_for_what_both_have() -> None:
    source, target = with_codes(("%s: {a} {b}",)), with_codes(("{b} %s {c}",))
    assert pair_with_markers(source, target) == ("⓵: {a} ⓶", "⓶ ⓵ {c}")
    tag = Code("<b>", inline=True)
    assert pair_with_markers((tag, "x"), ("y",)) == ("x", "y")
    twice = with_codes(("%s and %s",))
    assert pair_with_markers(twice, twice) == ("⓵ and ⓶", "⓵ and ⓶")


def test_what_a_model_has_copied_is_taken_and_anything_else_is_not() -> None:
    codes = codes_of(with_codes(("{a} {a} %s",)))
    found = restore_copies("%s {a}: {a}", codes)
    assert found is not None
    assert codes_of(found) == [Code("%s"), Code("{a}"), Code("{a}")]
    assert restore_copies("%s {a}", codes) is None
    assert restore_copies("{a} {a} {a} %s", codes) is None
    assert restore_copies("<b>", [Code("<b>", inline=True)]) is None


@pytest.mark.parametrize(
    "source,text,links,expected",
    [
        ("the <b>black</b> dog", "le chien noir", [(0, 0), (1, 2), (2, 1)], "le chien <b>noir</b>"),
        ("a <b>dog</b>.", "ein Hund.", [(0, 0), (1, 1)], "ein <b>Hund</b>."),
        ("{n} files of {m}", "Dateien von", [(0, 0), (1, 1)], "{n} Dateien von {m}"),
        ("<i>all</i> dogs", "alle Hunde", [], "<i>alle</i> Hunde"),
        ("a <b>b c</b> d", "C B", [(1, 1), (2, 0)], "<b>C B</b>"),
        ("%s", "", [], "%s"),
    ],
)
def test_codes_go_where_the_words_beside_them_went(
    source: str, text: str, links: list[tuple[int, int]], expected: str
) -> None:
    assert plain(place_codes(with_codes((source,)), text, links).parts) == expected


@given(TEXTS, st.text("xy .", max_size=12), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_no_code_is_lost_whatever_the_links(drawn: list[str | Code], text: str, links: list[tuple[int, int]]) -> None:
    source = join_parts(drawn)
    found = place_codes(source, text, links).parts
    assert Counter(codes_of(source)) == Counter(codes_of(found))
    assert bare_text(found).replace(" ", "") == text.replace(" ", "")


@given(TEXTS)
def test_sentences_put_together_are_the_text(drawn: list[str | Code]) -> None:
    parts = join_parts(drawn)
    before, cut = split_into_sentences(parts, "en")
    assert plain(join_parts([before, *(p for one in cut for p in (*one.parts, one.behind))])) == plain(parts)
    assert codes_of(tuple(part for one in cut for part in one.parts)) == codes_of(parts)


def test_sentences_end_where_they_do_and_lines_stay() -> None:
    before, cut = split_into_sentences(with_codes(("  Ask Dr. {name}. Then go!\n\n- Stop.  ",)), "en")
    assert before == "  "
    assert [(plain(one.parts), one.behind) for one in cut] == [
        ("Ask Dr. {name}.", " "),
        ("Then go!", ""),
        ("", "\n\n"),
        ("- Stop.", "  "),
    ]


def test_sentences_need_an_optional_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UserError, match=r"sentencex: pip install .headwise\[files\]"):
        split_into_sentences(("A dog. A cat.",), "en")
