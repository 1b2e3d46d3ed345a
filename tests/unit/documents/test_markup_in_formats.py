"""Inline markup in every format, with generated texts: what a model is asked for, and what is written."""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

import polib
import pytest
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from headwise.documents.fill import targets_of, translation_steps
from headwise.documents.reading import parse_document
from headwise.documents.segments import SentenceTranslation
from headwise.documents.unit import plain, strings_only

Node = str | int | tuple[int, list]  # a text, the number of a point, or that of a span with its content
WORDS = ["word", "an apple", "(so", "said)", "end.", "Two,", "it's", "5", "語", "a-b", "stop. Then go"]
TRANSLATIONS = ["Wort", "(das", "er)", "x.", "U,", "語語", "5", "T-S"]
SPANS, POINTS = 3, 2  # kinds


@dataclass(frozen=True)
class Syntax:
    """How a format writes a text, and what an independent reader finds in a file: codes, or an error."""

    name: str
    spans: Sequence[tuple[str, str]]
    points: Sequence[str]
    around: Callable[[str], bytes]
    codes: Callable[[bytes], Counter[str]]
    nests: bool = True  # whether spans may contain others
    needs_words: bool = False  # whether markup must be separated from words, and not be empty
    is_bilingual: bool = False


def xml_codes(data: bytes) -> Counter[str]:
    """The elements of an XML file, with their attributes; `ParseError` if it is not well-formed."""
    return Counter(f"{one.tag} {sorted(one.attrib.items())}" for one in ElementTree.fromstring(data).iter())


def html_codes(data: bytes) -> Counter[str]:
    """The tags of a page, each closed by its own end tag."""
    found, opened = Counter[str](), list[str]()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found[f"{tag} {attrs}"] += 1
            if tag not in ("br", "img"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Tags().feed(data.decode())
    assert not opened
    return found


def markdown_codes(data: bytes) -> Counter[str]:
    """The inline elements of a page in Markdown."""
    tokens = [inner for one in MarkdownIt("commonmark").parse(data.decode()) for inner in one.children or ()]
    return Counter(f"{one.type} {one.attrs}" for one in tokens if one.type != "text" and "close" not in one.type)


def rst_codes(data: bytes) -> Counter[str]:
    """The inline elements of a page in reStructuredText, without errors."""
    tree = publish_doctree(data.decode(), settings_overrides={"report_level": 5})
    assert not list(tree.findall(nodes.system_message)), tree.pformat()
    return Counter(type(one).__name__ for one in tree.findall(nodes.Inline) if not isinstance(one, nodes.problematic))


def xml_in(text: str) -> Counter[str]:
    return xml_codes(f"<r>{text}</r>".encode())


def with_archive(name: str, content: str) -> bytes:
    written = BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(name, content)
    return written.getvalue()


def from_archive(name: str) -> Callable[[bytes], Counter[str]]:
    def codes(data: bytes) -> Counter[str]:
        return xml_codes(zipfile.ZipFile(BytesIO(data)).read(name))

    return codes


ASS = {"": "<p/>", "0": "</b>", "1": "<b>"}
TAGS = [("<b>", "</b>"), ('<a href="x">', "</a>"), ("<i>", "</i>")]
ODF = "urn:oasis:names:tc:opendocument:xmlns"
SYNTAXES = [
    Syntax("a.html", TAGS, ["<br>", '<img src="x">'], lambda text: f"<p>{text}</p>".encode(), html_codes),
    Syntax(
        "a.xhtml",
        TAGS,
        ["<br/>", "{n}"],
        lambda text: f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{text}</p></body></html>'.encode(),
        xml_codes,
    ),
    Syntax(
        "strings.xml",
        TAGS,
        ["%1$s", "<br/>"],
        lambda text: f'<resources><string name="a">{text}</string></resources>'.replace("'", r"\'").encode(),
        xml_codes,
    ),
    Syntax(
        "a.xlf",
        [('<g id="1">', "</g>"), ('<bx id="2"/>', '<ex id="2"/>'), ('<g id="3">', "</g>")],
        ['<x id="4"/>', '<ph id="5">code</ph>'],
        lambda text: (
            '<xliff version="1.2"><file source-language="en" target-language="de" original="a" datatype="x"><body>'
            f'<trans-unit id="1"><source>{text}</source></trans-unit></body></file></xliff>'
        ).encode(),
        lambda data: xml_in(re.sub(r".*<target[^>]*>|</target>.*|.*</source>.*", "", data.decode(), flags=re.DOTALL)),
        is_bilingual=True,
    ),
    Syntax(
        "content.odt",
        [('<text:span text:style-name="A">', "</text:span>"), ('<text:a href="x">', "</text:a>")] * 2,
        ["<text:tab/>", "<text:line-break/>"],
        lambda text: with_archive(
            "content.xml",
            f'<office:document-content xmlns:office="{ODF}:office:1.0" xmlns:text="{ODF}:text:1.0"><office:body>'
            f"<office:text><text:p>{text}</text:p></office:text></office:body></office:document-content>",
        ),
        from_archive("content.xml"),
    ),
    Syntax(
        "a.json",
        TAGS,
        ["{n}", "%s"],
        lambda text: json.dumps({"a": text, "b": "Some other words."}, ensure_ascii=False).encode(),
        lambda data: xml_in(json.loads(data)["a"]),
    ),
    Syntax(
        "a.po",
        TAGS,
        ["%s", "<br/>"],
        lambda text: f'msgid ""\nmsgstr ""\n\nmsgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'.encode(),
        lambda data: xml_in(next(one.msgstr for one in polib.pofile(data.decode()) if one.msgid)),
        is_bilingual=True,
    ),
    Syntax(
        "a.srt",
        [("<i>", "</i>"), ("{\\b1}", "{\\b0}"), ("<u>", "</u>")],
        ["{\\an8}", "<br/>"],
        lambda text: f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode(),
        lambda data: xml_in(
            data.decode()
            .split("\n", 2)[2]
            .replace("{\\b1}", "<b>")
            .replace("{\\b0}", "</b>")
            .replace("{\\an8}", "<p/>")
        ),
    ),
    Syntax(
        "a.md",
        [("**", "**"), ("[", "](u)"), ("*", "*")],
        ["`c`", "![p](q)"],
        lambda text: f"{text}\n".encode(),
        markdown_codes,
        nests=False,
        needs_words=True,
    ),
    Syntax(
        "a.rst",
        [("**", "**"), ("`", " <https://a.b>`__"), ("*", "*")],
        ["``c``", ":sup:`d`"],
        lambda text: f"{text}\n".encode(),
        rst_codes,
        nests=False,
        needs_words=True,
    ),
]


Runs = Sequence[tuple[str, int]]  # texts, each with the number of its format; 0 = none
SENTENCES = [
    "How are you?",
    "\u201eHello\u201c, he said. (Then he left, on 12.5.)",
    "\u00bfQu\u00e9? \u00a1Hola! 5 % of us.",
    "Mr. Smith, e.g., paid $12: 'no' \u2013 \u201cyes!\u201d \u00abthen\u00bb 12.",
    "1. \u2014 a-b/c\u2026 it's #1 +",
    "\u8a9e\u3002\u300c\u8a9e\u300d\uff1f",
]
NS = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://schemas.openxmlformats.org/drawingml/2006/main",
    "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
)


def word(runs: Runs) -> bytes:
    """Runs of Word, as it divides them by language and spelling, too."""
    formats = ["<w:lang w:val='de'/>", "<w:b/>", "<w:i/>", "<w:noProof/><w:i/>"]
    xml = "<w:proofErr w:type='spellEnd'/>".join(
        f"<w:r w:rsidR='0{n}'><w:rPr>{formats[kind]}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"
        for n, (text, kind) in enumerate(runs)
    )
    body = f"<w:document xmlns:w='{NS[0]}'><w:body><w:p>{xml}</w:p></w:body></w:document>"
    return with_archive("word/document.xml", body)


def slide(runs: Runs) -> bytes:
    formats = ["lang='en-US' dirty='0'", "b='1' err='1'", "i='1' lang='de'", "i='1'"]
    xml = "".join(f"<a:r><a:rPr {formats[kind]}/><a:t>{text}</a:t></a:r>" for text, kind in runs)
    return with_archive("ppt/slides/slide1.xml", f"<p:sld xmlns:p='p' xmlns:a='{NS[1]}'><a:p>{xml}</a:p></p:sld>")


def workbook(runs: Runs) -> bytes:
    formats = ["", "<rPr><b/></rPr>", "<rPr><i/></rPr>", "<rPr><u/></rPr>"]
    xml = "".join(f"<r>{formats[kind]}<t xml:space='preserve'>{text}</t></r>" for text, kind in runs)
    written = BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("xl/workbook.xml", f"<workbook xmlns='{NS[2]}'/>")
        archive.writestr("xl/sharedStrings.xml", f"<sst xmlns='{NS[2]}'><si>{xml}</si></sst>")
    return written.getvalue()


def in_spans(syntax: Syntax) -> Callable[[Runs], bytes]:
    """Runs as the spans of a format."""
    spans = [("", ""), *syntax.spans]
    return lambda runs: syntax.around("".join(text.join(spans[kind]) for text, kind in runs))


RUNS_IN_FORMATS = {"a.docx": word, "a.pptx": slide, "a.xlsx": workbook} | {
    one.name: in_spans(one)
    for one in SYNTAXES
    if one.name in ("a.html", "a.xhtml", "strings.xml", "a.xlf", "content.odt", "a.srt")
}


@pytest.mark.parametrize("name", RUNS_IN_FORMATS)
@given(data=st.data())
def test_a_model_reads_the_sentences_that_a_reader_sees_whatever_the_formats(name: str, data: st.DataObject) -> None:
    sentence = data.draw(st.sampled_from(SENTENCES))
    cuts = data.draw(st.lists(st.integers(1, len(sentence) - 1), max_size=8).map(lambda one: sorted(set(one))))
    texts = [sentence[start:end] for start, end in pairwise([0, *cuts, len(sentence)])]
    runs = [(one, data.draw(st.integers(0, SPANS))) for one in texts]
    whole, divided = (parse_document(name, RUNS_IN_FORMATS[name](one), ("en", "de")) for one in ([(sentence, 0)], runs))
    assert Counter(run(divided, identity)[1]) == Counter(run(whole, identity)[1])
    units, _ = run(divided, lambda text: (text.upper(), identity(text)[1]))
    (again,) = parse_document(name, divided.filled(targets_of(units)), ("en", "de")).units
    assert strings_only(again.target or again.source) == sentence.upper()


def texts(syntax: Syntax) -> st.SearchStrategy[list[Node]]:
    """Texts with spans and points."""
    leaf = st.sampled_from(WORDS) | st.integers(0, POINTS - 1)
    inner = st.lists(leaf if syntax.nests else st.sampled_from(WORDS), min_size=1, max_size=3)
    spans = st.tuples(st.integers(0, SPANS - 1), inner)
    if syntax.nests:
        spans |= st.tuples(st.integers(0, SPANS - 1), st.lists(leaf | spans, min_size=1, max_size=3))
    return st.lists(leaf | spans, min_size=1, max_size=5).map(lambda nodes: ["Begin", *nodes])


def written(syntax: Syntax, content: Sequence[Node], glue: str) -> str:
    """A text in the syntax of a format, with `glue` between its nodes."""
    pieces = []
    for node in content:
        if isinstance(node, tuple):
            opening, closing = syntax.spans[node[0]]
            pieces.append(f"{opening}{written(syntax, node[1], ' ')}{closing}")
        else:
            pieces.append(syntax.points[node] if isinstance(node, int) else node)
    return glue.join(pieces)


def run(document, change: Callable[[str], tuple[str, frozenset[tuple[int, int]]]]) -> tuple[list, list[str]]:
    """The translated units of a document by a stand-in for a model, and the texts that it was asked for."""
    steps, asked = translation_steps(document, "en", False), list[str]()
    try:
        wanted = next(steps)
        while True:
            asked += wanted.texts
            answers = [change(text) for text in wanted.texts]
            wanted = steps.send(
                [SentenceTranslation(text, log_prob=-0.1, n_tokens=(0, 1), links=links) for text, links in answers]
            )
    except StopIteration as end:
        return end.value, asked


def identity(text: str) -> tuple[str, frozenset[tuple[int, int]]]:
    return text, frozenset((i, i) for i in range(len(text.split())))


def any_answer(random: Random) -> Callable[[str], tuple[str, frozenset[tuple[int, int]]]]:
    """A stand-in that answers with other words, and links them as it likes."""

    def change(text: str) -> tuple[str, frozenset[tuple[int, int]]]:
        n = len(text.split())
        words = [random.choice(TRANSLATIONS) for _ in range(random.randrange(n // 2 + 1, n + 3))]
        return " ".join(words), frozenset(
            (random.randrange(n), random.randrange(len(words))) for _ in range(random.randrange(2 * n))
        )

    return change


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: one.name)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_every_alignment_gives_a_valid_file_with_the_same_codes(syntax: Syntax, data: st.DataObject, seed: int) -> None:
    content = data.draw(texts(syntax))
    original = syntax.around(written(syntax, content, " "))
    document = parse_document(syntax.name, original, ("", ""))
    units, _ = run(document, any_answer(Random(seed)))
    filled = document.filled(targets_of(units))
    warned = [warning for unit in units for warning in unit.warnings]
    if syntax.is_bilingual and not all(one.target for one in units):
        return
    expected = xml_in(written(syntax, content, " ")) if syntax.is_bilingual else syntax.codes(original)
    found = syntax.codes(filled)
    assert found == expected or ("markup lost" in warned and found <= expected), filled.decode(errors="replace")


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: one.name)
@given(data=st.data())
def test_an_unchanged_text_leaves_its_bytes(syntax: Syntax, data: st.DataObject) -> None:
    glue = data.draw(st.sampled_from([" ", "  "] if syntax.needs_words else [" ", "", "  "]))
    original = syntax.around(written(syntax, data.draw(texts(syntax)), glue))
    document = parse_document(syntax.name, original, ("", ""))
    units, _ = run(document, identity)
    if syntax.is_bilingual:
        assert [plain(one.target) for one in units] == [plain(one.unit.source) for one in units]
    else:
        assert document.filled(targets_of(units)) == original


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: one.name)
@given(data=st.data())
def test_capitals_leave_all_codes_where_they_are(syntax: Syntax, data: st.DataObject) -> None:
    content = data.draw(texts(syntax))
    glue = data.draw(st.sampled_from([" "] if syntax.needs_words else [" ", ""]))
    document = parse_document(syntax.name, syntax.around(written(syntax, content, glue)), ("", ""))
    units, _ = run(document, lambda text: (text.upper(), identity(text)[1]))
    for one in units:
        assert strings_only(one.target) == strings_only(one.target).upper()
        assert plain(one.target).lower() == plain(one.unit.source).lower()
