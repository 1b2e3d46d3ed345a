"""Pages are parsed by the rules of browsers: another parser sees the same tree in a page and in its filling."""

import re
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tinyhtml5 import parse

from headwise.documents.formats.html_page import parse_html
from headwise.documents.formats.html_pieces import page_pieces
from headwise.documents.passages import Characters, Passages
from headwise.documents.reading import parse_document
from headwise.documents.unit import Code, UnitState, codes_of, plain


def read(page: str, language: str = "", name: str = "a.html") -> Passages:
    return parse_html(Characters(name, page.encode()), language)


def texts(page: str, name: str = "a.html") -> list[str]:
    return [plain(unit.source) for unit in read(page, name=name).units if unit.state is UnitState.UNTRANSLATED]


def filled(page: str, language: str = "", name: str = "a.html") -> str:
    document = read(page, language, name)
    changed = {
        number: tuple(part if isinstance(part, Code) else f"<{part.upper()}>" for part in unit.source)
        for number, unit in enumerate(document.units)
        if unit.state is UnitState.UNTRANSLATED
    }
    return document.filled(changed).decode()


def tree(page: str) -> list[tuple[object, tuple[str, ...]]]:
    """Elements and attribute names, in order; a comment is an element without a name."""
    whole = parse(page)
    assert isinstance(whole, Element)
    return [
        (
            one.tag if isinstance(one.tag, str) else "",
            tuple(key if isinstance(key, str) else key[1] for key in one.attrib),
        )
        for one in whole.iter()
    ]


@pytest.mark.parametrize(
    "page,expected",
    [
        ('<p>a <a href="x>b</a> c</p><p>d "e</p><p>f', ["a", "f"]),  # browsers drop what a quotation mark swallows
        ("<p title=a'b\"c>d 'e</p><p>f \"g</p>", ["a'b\"c", "d 'e", 'f "g']),
        ("<p>a < b<3 c<p>d", ["a < b<3 c", "d"]),
        ("<p>&#51060; &#47928;<p>&#160;<p>&nbsp;", ["\uc774 \ubb38"]),  # letters may all be references
        ("<!-- a --!><p>b<!--><p>c<!-- <p>d", ["b", "c"]),
        ("<script>if (a</b>) '</p>'</script><p>b<style>c</p></style>", ["b"]),
        ("<script><!-- <script> </script> a </script><p>b", ["b"]),
        ("<title>a <b>c</title><p>d", ["a <b>c", "d"]),
        ("<svg><title/>a</svg><p>b<svg><style><!-- --></style><![CDATA[ <p>c</p> > ]]></svg> d", ["b<svg>"]),
        ('<p title="a" title="b">c</P >d</p>e', ["a", "c", "d", "e"]),
        ("<p>a&nbspb &notit; &#128; &#x110000;", ["a\u00a0b \u00acit; \u20ac \ufffd"]),
        ("<ul><li translate=no>a<b>b</b><li>c<ul><li class=notranslate>d</ul>e</ul>", ["c", "e"]),
        ("<p translate=no>a<div>b</div>", ["b"]),
        ("<table><tr><td translate=no>a<td>b<tr><th>c", ["b", "c"]),
        ("<td translate=no>a<td>b", ["b"]),
        ("<b><p translate=no>a</b>b</p>c", ["c"]),
        ("a</>b<?php c ?>d", ["a</>b<?php c ?>d"]),
        ("<noscript><p>a</noscript><template><p>b</template>", ["a", "b"]),
        ("<pre>a</pre><textarea>b <p></textarea><p>c<code>d", ["c<code>d"]),
        ("<p>a<plaintext>b <c>", ["a", "b <c>"]),
    ],
)
def test_what_is_a_text(page: str, expected: list[str]) -> None:
    found = texts(page)
    assert [re.sub(r"<svg>.*", "<svg>", text) for text in found] == expected
    assert read(page).filled({}).decode() == page


@pytest.mark.parametrize(
    "page,codes",
    [
        ("The dog<sup>1</sup> runs", ["<sup>1</sup>"]),
        (
            "The <b>dog</b><sup><a href=#n title=note>[2]</a></sup>, too",
            ["<b>", "</b>", "<sup><a href=#n title=note>[2]</a></sup>"],
        ),
        ("CO<sub>2</sub> is a gas", ["<sub>2</sub>"]),
        ("H<sub>2</sub>O is water", ["<sub>", "</sub>"]),
        ("The 4<sup>th</sup> dog", ["<sup>", "</sup>"]),
        ("<sup>*</sup> A dog", ["<sup>*</sup>"]),
        ("A <sup>1 dog", ["<sup>"]),
    ],
)
def test_a_superscript_or_subscript_without_letters_is_one_code(page: str, codes: list[str]) -> None:
    document = read(f"<p>{page}</p>")
    assert [code.text for code in codes_of(document.units[0].source)] == codes
    assert (
        document.filled({0: ("Text", *codes_of(document.units[0].source))}) == f"<p>Text{''.join(codes)}</p>".encode()
    )


def test_attributes_that_are_texts() -> None:
    page = """<meta name="Description" content='a b'><meta name=viewport content="no">
<meta property="og:title" content="c">
<input type=submit value=d><input type="button" value="e f"><input type=text value="no" placeholder=g><button>h</button>
<img alt=i title="" aria-label="j"><area alt="k"><track label=l><table><th abbr=m></table>
<meta http-equiv=x content="no">"""
    assert "".join(texts(page)).replace(" ", "") == "abcdefghijklm"
    assert '<input type=submit value="&lt;D&gt;">' in filled(page)
    assert "content='&lt;A B&gt;'" in filled(page)


@pytest.mark.parametrize(
    "tag,language,expected",
    [
        ("<html>", "de", '<html lang="de">'),
        ("<HTML class=a lang=en>", "pt_BR", '<HTML class=a lang="pt-BR">'),
        ("<html xml:lang='en' lang='en'>", "deu_Latn", '<html xml:lang="deu-Latn" lang="deu-Latn">'),
        ('<html lang="en">', "ar", '<html dir="rtl" lang="ar">'),
        ('<html lang="en" dir=ltr>', "he-IL", '<html lang="he-IL" dir="rtl">'),
        ('<html dir="rtl" lang="ar">', "en", '<html dir="ltr" lang="en">'),
        ('<html lang="en">', "pan_Arab", '<html dir="rtl" lang="pan-Arab">'),
        ('<html lang="en">', "arg", '<html lang="arg">'),
        ('<html lang="en">', "", '<html lang="en">'),
        ('<html lang="en">', '"><script>', '<html lang="en">'),
    ],
)
def test_a_filled_page_declares_its_language(tag: str, language: str, expected: str) -> None:
    page = f"<!DOCTYPE html>\r\n{tag}<title>a</title>"
    assert filled(page, language) == f"<!DOCTYPE html>\r\n{expected}<title>&lt;A&gt;</title>"
    assert read(page, language).filled({}).decode() == page


def test_the_language_comes_with_the_file() -> None:
    document = parse_document("a.html", b"<html><p>a", ("en", "fr"))
    assert document.filled({0: ("b",)}) == b'<html lang="fr"><p>b'


def test_xhtml_is_read_by_the_rules_of_xml() -> None:
    page = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/><style type="a>b"/></head>
<body><p><a id="p1"/>a\u00a0b <i class="notranslate"/>c <![CDATA[ <p> &no; ]]><br/>
d <textarea rows="1" />e</p></body></html>"""
    assert texts(page, "a.xhtml") == ['a\u00a0b <i class="notranslate"/>c', "d", "e"]
    found = filled(page, name="a.xhtml")
    assert "A&#160;B" in found
    before, after = ([(one.tag, one.attrib) for one in fromstring(text).iter()] for text in (page, found))
    assert before == after


def test_templates_stay_as_they_are() -> None:
    page = "<p>a <%= b & c %> d</p><p><%= e %></p><p>f &lt;%= g %&gt; h < i</p>"
    assert texts(page) == ["a <%= b & c %> d", "f <%= g %> h < i"]
    assert filled(page) == (
        "<p>&lt;A &gt;<%= b & c %>&lt; D&gt;</p><p><%= e %></p><p>&lt;F &lt;%= G %&gt; H &lt; I&gt;</p>"
    )


def test_what_stays_is_counted() -> None:
    page = """<p>a <code>b</code></p><p><code>c</code></p>
<pre>d</pre><textarea>e</textarea><p translate=no>f</p><script>g</script><style>h</style><pre>12</pre>
<svg><text>i</text></svg><math><mi>j</mi></math><!-- k -->
<p>l</p><a title="m"""
    assert [(one.line, one.kind) for one in read(page).skipped] == [
        *[(1, "code"), (2, "preformatted text"), (2, "text field"), (2, 'translate="no"'), (3, "drawing")],
        *[(3, "formula"), (4, "CDATA section or unclosed tag")],
    ]


PIECES = [
    *("<p>", "</p>", "a", " B ", "<br/>", "<!-- c -->", "<script>if (a < b) c();</script>", '<a href="a>b">', "</a>"),
    *("<", ">", "\n", "\r\n", "\r", "</a >", "<!doctype html>", "<pre>", "</pre>", "\u00e9", "<style>", "</STYLE>"),
    *("<b>", "</b>", "<i translate=no>", "</i>", '<img alt="a dog">', "<code>", "</code>", "<svg>", "</svg>"),
    *("</title>", "<table>", "<tr>", "<td>", "</table>", "<li>", "<ul>", "</ul>", "<div>", "</div>", "<math>", "</>"),
    *("'", "<![CDATA[", "]]>", "<!--", "-->", "<textarea>", "</textarea>", "<select>", "<option>", "<a title=", "<?x"),
    *("<body class=a>", "<html>", "<h1>", "</h1>", "<template>", "</template>", "<noscript>", "<mi>", "&lt;", "="),
    *("<title>", "&amp;", "/>", "\0", '"'),
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.sampled_from(["a.html", "a.xhtml"]))
@example("<table>a<tr>b</table>c", "a.html")
def test_any_page_comes_back(page: str, name: str) -> None:
    assert "".join(page[piece.start : piece.end] for piece in page_pieces(name, page)) == page
    assert read(page, name=name).filled({}).decode() == page


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
@example("<p>a<b>c</p>d</b>e")
@example('"<img alt="a dog">')  # the page begins with a quotation mark
def test_a_filled_page_has_the_same_elements(page: str) -> None:
    assert tree(filled(page)) == tree(page)


def test_front_matter_stays() -> None:
    front = "---\nlayout: error\ntitle: Not found\n---\n"
    document = parse_document("a.html", f"{front}<p>Hello <b>you</b></p>\n".encode())
    assert [unit.source[0] for unit in document.units] == ["Hello "]
    assert [(one.kind, one.line) for one in document.skipped] == [("front matter", 1)]
    assert document.filled({0: ("x",)}).decode() == f"{front}<p>x</p>\n"
