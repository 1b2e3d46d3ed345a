"""Codes come through a translation: found, marked, put back."""

import re
import sys
from collections import Counter
from itertools import chain
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.documents.markup.inline_pairs import with_kinds
from headwise.documents.markup.inline_tree import bare_text, same_tree
from headwise.documents.markup.markers import MARKERS, pair_with_markers, restore_copies, restore_markers, with_markers
from headwise.documents.markup.markup import to_xml
from headwise.documents.markup.placed_codes import place_codes
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.sentences import split_into_sentences
from headwise.documents.unit import Code, codes_of, join_parts, plain, strings_only
from headwise.errors import UserError

TEXT_PIECES = ["word", "an apple", "(x)", "end. ", "  two", '"q"', "5,", " ", "it's", "語", "a-b", "Ein Wort."]
SMALL = st.integers(0, 9)
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
        # a number is linked to itself, and a span without links gets a word without links
        ("<b>March</b> <i>5</i>, 2021", "5. März 2021", [(2, 0), (2, 1), (2, 2)], "<i>5</i>. <b>März</b> 2021"),
        # spans beside each other stay beside each other: words in between are given up
        ("<b>a b</b> <i>c</i>", "B C A", [(0, 2), (1, 0), (2, 1)], "<b>B</b> <i>C</i> A"),
        ("see (<a>page</a>)", "(Seite) ansehen", [(0, 1), (1, 0)], "(<a>Seite</a>) ansehen"),
        ("H<sub>2</sub>O", "H2O", [(0, 0)], "H<sub>2</sub>O"),
        ("dr<b>a</b>g it", "ziehe es", [(0, 0), (1, 1)], "<b>ziehe</b> es"),
        ("Open {a}, then", "Dann öffnen,", [(0, 1), (1, 0)], "Dann öffnen {a},"),
        ("delete {n} files", "删除文件", [(0, 0), (1, 0)], "{n}删除文件"),
        ("<b>%s</b> of <b>x</b>", "von", [(0, 0)], "<b>%s</b> <b>von</b>"),
        # a word does not touch a code whose signs are missing
        ("the “{a}” dog", "der Hund", [(0, 0), (2, 1)], "der {a} Hund"),
        ("see ({a}, {b}) now", "siehe, jetzt", [(0, 0), (2, 1)], "siehe {a}, {b} jetzt"),
        ("the dog “{a}”", "Hund", [(1, 0)], "Hund {a}"),
        ("a (<wbr/>dog", "ein Hund", [(0, 0), (1, 1)], "ein <wbr/>Hund"),
        ("x-{a}-y", "xy", [(0, 0)], "xy {a}"),
        # a span that has only signs gets signs, and no words
        ("Who<b>?</b>", "Qui ?", [(0, 0), (0, 1)], "Qui <b>?</b>"),
        ("He<b>.</b>", "他。", [(0, 0)], "他<b>。</b>"),
        ("Who<b>?</b>", "Wer", [(0, 0)], "Wer<b></b>"),
        ("a<b>,</b> b", "B, a", [], "B<b>,</b> a"),
        ("<b>¿</b>Qué<b>?</b>", "What?", [(0, 0)], "<b></b>What<b>?</b>"),
        ("say <b>“</b>a<b>”</b>", "„A“ sagen", [(0, 1), (1, 0)], "<b>„</b>A<b>“</b> sagen"),
        ("one <b>-</b> two", "two one", [(0, 1), (2, 0)], "two one<b></b>"),
    ],
)
def test_codes_go_where_the_words_beside_them_went(
    source: str, text: str, links: list[tuple[int, int]], expected: str
) -> None:
    assert plain(place_codes(with_codes((source,)), text, links).parts) == expected


TREES = st.recursive(
    st.sampled_from([*TEXT_PIECES, Code("{n}"), Code("<br/>", inline=True)]).map(lambda one: [one]),
    lambda inner: st.tuples(st.sampled_from("abiu"), st.lists(inner, max_size=4)).map(
        lambda one: [
            Code(f"<{one[0]}>", inline=True),
            *(p for each in one[1] for p in each),
            Code(f"</{one[0]}>", True),
        ]
    ),
    max_leaves=12,
)
SOURCES = st.lists(TREES, max_size=5).map(lambda found: list(chain.from_iterable(found)))


@given(SOURCES, st.lists(st.sampled_from(TEXT_PIECES), max_size=8), st.lists(st.tuples(SMALL, SMALL)))
def test_any_alignment_gives_the_same_tree(
    drawn: list[str | Code], words: list[str], links: list[tuple[int, int]]
) -> None:
    source = with_codes(join_parts(drawn))
    text = " ".join(words)
    placed = place_codes(source, text, links)
    ElementTree.fromstring(f"<r>{to_xml(placed.parts)}</r>")
    assert Counter(codes_of(source)) == Counter(codes_of(placed.parts))
    assert same_tree(source, placed.parts, with_words=not placed.is_emptied)
    assert "".join(strings_only(placed.parts).split()) == "".join(text.split())


@given(
    SOURCES,
    st.tuples(SMALL, SMALL),
    st.lists(st.sampled_from(TEXT_PIECES), max_size=8),
    st.lists(st.tuples(SMALL, SMALL)),
)
def test_spans_over_two_sentences_stay_at_their_ends(
    drawn: list[str | Code], cut: tuple[int, int], words: list[str], links: list[tuple[int, int]]
) -> None:
    whole = with_codes(join_parts(drawn))
    first, last = sorted(min(at, len(whole)) for at in cut)
    source = whole[first:last]
    placed = place_codes(source, " ".join(words), links)
    assert Counter(codes_of(source)) == Counter(codes_of(placed.parts))
    assert same_tree(source, placed.parts, with_words=False)
    before, behind = whole[:first], whole[last:]
    ElementTree.fromstring(f"<r>{to_xml((*before, *placed.parts, *behind))}</r>")


def test_what_follows_a_span_of_the_sentence_before_it_stays_behind_it() -> None:
    source = with_codes(("<b>One. Then go</b> {n} word",))[1:]
    placed = place_codes(("Then go", *source[1:]), "W T G", [(0, 1), (1, 2), (2, 0)])
    assert plain(placed.parts) == "W T G</b> {n}"


def test_the_end_of_a_span_is_in_the_sentence_before_it() -> None:
    parts = with_codes(("See <b>this text.</b> Then <i>go.</i>",))
    _, spans = split_into_sentences(parts, "en")
    assert [plain(span.parts) for span in spans] == ["See <b>this text.</b>", "Then <i>go.</i>"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Mr<b>.</b> Smith came<b>.</b> He left.", ["Mr<b>.</b> Smith came<b>.</b>", "He left."]),
        ("“Hi<b>.”</b> He left.", ["“Hi<b>.”</b>", "He left."]),
        ("One.<x1/> Two<x2/>. Three", ["One.<x1/>", "Two<x2/>.", "Three"]),  # notes
        ("One.<x1/>Two", ["One.<x1/>", "Two"]),  # a line break
        ("Mr.<m1/> Smith. <m2/>Two", ["Mr.<m1/> Smith.", "<m2/>Two"]),  # bookmarks
        ("One. <x1/> is two.", ["One.", "<x1/> is two."]),  # a picture
        ("One. <b> Two.</b>", ["One.", "<b> Two.</b>"]),
    ],
)
def test_sentences_end_where_a_reader_sees_them_end(text: str, sentences: list[str]) -> None:
    parts = with_kinds(tuple(Code(one, True) if one[:1] == "<" else one for one in re.split("(<[^>]*>)", text)))
    _, spans = split_into_sentences(join_parts(parts), "en")
    assert [plain(span.parts) for span in spans] == sentences


@given(SOURCES)
def test_an_unchanged_translation_leaves_everything_where_it_is(drawn: list[str | Code]) -> None:
    source = with_codes(join_parts(drawn))
    text = bare_text(source)
    assert place_codes(source, text, ()).parts == source
    links = [(n, n) for n in range(len(text.split()))]
    capitals = tuple(part.upper() if isinstance(part, str) else part for part in source)
    assert place_codes(source, text.upper(), links).parts == capitals


@pytest.mark.parametrize(
    "source,text",
    [
        ("Qty<x/>Price<x/>Total", "Qty Price Total"),
        ("First line<br/>second line", "First line second line"),
        ("<b>W</b>ord and <b>anot</b>her", "Word and another"),
        ("a super<wbr>long word<!-- note --> and", "a superlong word and"),
        ("Open {file}, then", "Open, then"),
        ('"%s" and (%d)', '"" and ()'),
        ("{a}{b}", ""),
        ("文字<br/>文字", "文字文字"),
        ("R&amp;D caf&eacute;s", "R D cafs"),
    ],
)
def test_a_model_sees_the_words_that_a_reader_sees(source: str, text: str) -> None:
    assert bare_text(with_codes((source,))) == text


@pytest.mark.parametrize(
    "codes,markup,kinds",
    [
        ("<b> <i> </i> </b> <br> <img/>", "", "oocc.."),
        ("<b> <i> </b> </i>", "", "o.c."),  # not nested
        ("<file> <B> </b>", "", ".oc"),
        ("{% if x %} {% else %} {% endif %} {{#y}} {{/y}} {{z}}", "", "o.coc."),
        ("{\\i1} {\\an8} {\\i0}", "", "o.c"),
        ('<bpt i="1"/> <ph/> <ept i="1"/> <bx id="2"/> <ex id="2"/> <sc id="3"/> <ec startRef="3"/>', "", "o.cococ"),
        ("** * * ** [ ](u) ![ ][r] == == ` `", "markdown", "ooccocococ.."),
        ("** ** * * ` `_", "rst", "ocococ"),
        ("** ** *", "", "..."),
    ],
)
def test_codes_that_belong_together_are_the_ends_of_spans(codes: str, markup: str, kinds: str) -> None:
    parts = tuple(Code(text) for text in re.findall(r"<[^>]*>|\{[^}]*\}+|\S+", codes))
    found = [code.kind for code in codes_of(with_kinds(parts, markup))]
    assert "".join({"opens": "o", "closes": "c", "point": "."}[kind] for kind in found) == kinds


@pytest.mark.parametrize(
    "text,ends",
    [
        (r"with [some \[x\]](u).", ["[", "](u)"]),
        ("[[a](u)] [b [c] d](v)", ["[", "](u)", "[", "](v)"]),
        ("[![i](j)](k) [x] [y", ["[", "![", "](j)", "](k)"]),
        ("a](u)", []),
    ],
)
def test_only_brackets_of_links_are_codes(text: str, ends: list[str]) -> None:
    parts = with_codes((text,), "markdown")
    found = [code for code in codes_of(parts) if code.kind != "point"]
    assert [code.text for code in found] == ends
    assert plain(parts) == text


@pytest.mark.parametrize(
    "text,spans",
    [
        ("def f(_info): _id = _info['id']", 0),
        ("_a_ and _b c_, d_e_f", 2),
        ("**a** *b c* 5 * 3 ~~d~~", 3),
        ("a** b **c", 0),
    ],
)
def test_marks_of_emphasis_open_and_close_by_what_is_beside_them(text: str, spans: int) -> None:
    parts = with_codes((text,), "markdown")
    assert [code.kind for code in codes_of(parts)] == ["opens", "closes"] * spans
    assert plain(parts) == text


def test_tags_of_a_format_without_partners_reach_to_the_end_of_a_text() -> None:
    parts = (Code("</b>", inline=True), Code("<i>", inline=True), Code("<br>", inline=True), Code("<p>"))
    assert [code.kind for code in codes_of(with_kinds(parts))] == ["closes", "opens", "point", "point"]


def test_codes_that_a_model_or_a_memory_put_elsewhere_must_be_nested() -> None:
    source = with_codes(("<b>a</b> {n} <i>b</i>",))
    for target, same in [
        ("<i>b</i> <b>a {n}</b>", True),
        ("</b>a<b> {n} <i>b</i>", False),
        ("<b>a <i>b</b></i> {n}", False),
        ("<b>a <i>b</i></b> {n}", False),
    ]:
        assert same_tree(source, with_codes((target,))) is same
    inside = with_codes(("{% if a %}b {% else %}c{% endif %}",))
    assert not same_tree(inside, with_codes(("{% if a %}b c{% endif %}{% else %}",)))


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
