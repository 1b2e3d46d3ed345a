"""Every scanner of text takes time in proportion to the text, whatever the text is.

One request or one file of a shape that nobody thought of must not stop a server. `SHAPES` are texts that have made
scanners slow, and `SCANNERS` all code that reads texts of users: a new one is a line there. Regular expressions at the
head of a module are found by themselves, and so are those written into a call of `re`.

Time is processor time, because steps cannot be counted: regular expressions, slices and other libraries work in C and
Rust. A scanner that needs less than `QUICK` for a text of `SMALL` characters is linear, or would need more; any other
is given texts of twice the length, twice the length of those, and so on: it fails if three doublings in a row cost it
more than `MOST` times the time each. A quadratic one takes 4 times, a linear one twice the time.
"""

import ast
import importlib
import json
import pkgutil
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from sampling import ALL

import headwise
from headwise.config.data import TranslationData
from headwise.documents.fill import targets_of, translation_steps
from headwise.documents.glossary.terms import Glossary, Term, contains_term
from headwise.documents.markup.placeholder_grammars import DIALECTS
from headwise.documents.markup.placeholders import adds_codes, is_icu_choice, same_placeholders, with_codes
from headwise.documents.quality_checks import quality_warnings
from headwise.documents.reading import parse_document
from headwise.documents.segments import SentenceTranslation
from headwise.documents.sentences import split_into_sentences
from headwise.documents.unit import Document
from headwise.errors import UserError
from headwise.evaluate import answers, bleu, transcripts
from headwise.evaluate.corpus import characters
from headwise.runtime.search.repetition import is_repetitive
from headwise.runtime.search.translator import clean_text, split_text
from headwise.serve.languages import detect_languages
from headwise.serve.translation import segment_text
from headwise.text.files import scripts
from headwise.text.files.scripts import word_pattern
from headwise.text.files.sentences import sentence_key
from headwise.text.files.words import cut
from headwise.text.tokens.tokenizer import Tokenizer

pytestmark = pytest.mark.thorough  # time is measured

Scan = Callable[[str], Any]
SMALL, QUICK, MOST, DOUBLINGS = 2000, 0.002, 2.9, 3

SHAPES = {  # what a text repeats, with what it begins and ends with
    "one long word": ("", "a", ""),
    "a word before a mark": ("", "a", "!"),
    "capitals": ("", "A", ""),
    "digits": ("", "0", ""),
    "accents": ("", "é", "!"),
    "marks on letters": ("a", "\u0301", ""),
    "Chinese": ("", "漢", ""),
    "Thai": ("", "ก", "a"),
    "blanks": ("a", " ", "a"),
    "blanks at the end": ("a", " ", ""),
    "tabs": ("", "\t", "a"),
    "line ends": ("a", "\n", "a"),
    "carriage returns": ("a", "\r", "a"),
    "both": ("", "\r\n", "a"),
    "no-break blanks": ("a", "\xa0", "a"),
    "low lines": ("a", "_", "a"),
    "short words": ("", "a b ", ""),
    "short sentences": ("", "A b. ", ""),
    "Chinese sentences": ("", "漢字。", ""),
    "initials": ("", "A. ", ""),
    "numbers": ("", "1. ", ""),
    **{f"{mark!r}": ("", mark, "a") for mark in "<>&%{}[]()`*~\\\"'.,:;/-+@#$|!?=^\0"},
    **{
        f"{unit!r}": ("", unit, "")
        for unit in (
            *("<a", "<!--", "<!--a", "-->", "<a>", "</a>", "<a></a>", "<a ", "<?", "<![CDATA[", "<script>", "<img>"),
            *("{{", "{%", "{%a", "{#", "${", "%(", "$t(", "](", "![", "[a](", "[a](b) ", "``", "` `` ", "*a", "** "),
            *("_a ", "&#", "&a", "&#1", "&amp;"),
            *("<a '", "</", "<a href=x>", "<kbd>", "<b>", "a*b _", "[a]\n", "***a"),
            *("\\u", "\\\n", "\\a", "http://", "http://a ", "a@", "a@b.", "a.", "a-", "$a", "%1"),
            *("%d ", ":a:`", ":a"),
            *("`_", " <a>", "_[", "00:", "a=", "a: b\n", "'{", "! ", "|a", "| ", "|a\\|", "> ", "# "),
            *("- ", "{n, plural, ", "{n, date, ", "'{''", "{a, date}", "<%", "<%a", "<?a", "{$a ", "{0:", "{a:{"),
            *("%1$", "{a:%", "%[1]", "~1,", "~'", "%|a", "%*", "%<PRI", "{!!", "{{{", "%%a", "{a[", "{a, date, '"),
            *("!!! a\n", ":::a\n", "$$\n", "{%\n", "\\[\n", "$a", ":a:", "{: .a", "[[a"),
            *("{a}`", "^a", "a~", "\\(", "```{a}\n"),
            *("{a} ", "<0x0A>", "[^a", "[a]: b\n", "a\n\n", "  a\n", "\u200d", "\ue000*", "漢 ", "Ã©", "a.\n", "\"'"),
            *("。", " \n"),
        )
    },
    **{f"{first!r} and {unit!r}": (first, unit, last) for first, unit, last in (
        ("](", " ", "a"), ("](<", "a", "b"), ("{% ", "a ", ""), ("<", ":", ""), ("%", "0", "!"), ("%(", "a", ""),
        ("a@b", "c", ""), (" ", "_", " "), ("$t(", "a", ""), ("---\n", "a\n", ""), ("1\n", "a", ""), ("{%", "%}", "a"),
        ("<a b='", "\"", ""), ("&#", "9", ";"), ("[`", "a", ""), ("\\", "\\", "u"), ("a\n", "=", ""),
        ("{a, date}", "a", ""), ("{", "{a, date}", ""), ("", "{a, date}", "{{"), ("'{", "''", ""), ("{0:", "a", ""),
        ("|a|\n|-|\n", "|a|\n", ""),
        ("1\n00:00:01,000 --> 00:00:02,000\n", "a ", ""), ("1\n00:00:01,000 --> 00:00:02,000\n", "a\n", ""),
        ("", "1\n00:00:01,000 --> 00:00:02,000\na b\n\n", ""),
    )},
}  # fmt: skip
# For documents, whose texts go through scanners that are given every shape.
OF_DOCUMENTS = (
    "one long word", "blanks", "line ends", "carriage returns", "short sentences", "Chinese sentences",
    *(repr(unit) for unit in (
        *("<", "&", "{", "[", "`", "*", "_a ", "\\", '"', "|", "<!--", "<a>", "<a ", "<a></a>", "</a>"),
        *("<a '", "</", "<a href=x>", "<img>", "<script>", "&amp;", "<kbd>", "<b>", "a*b _", "[a]\n", "***a", "a.\n"),
        *("{%a", "{a} ", "%d ", "[a](b) ", "](", "> ", "- ", "# ", "|a\\|", "\\\n", "&#1", "a=", "a: b\n", "[a]: b\n"),
        *("  a\n", "\ue000*", " <a>", "'{", "!!! a\n", ":::a\n", "$$\n", "{%\n", "\\[\n", "```{a}\n"),
    )),
    *(shape for shape in SHAPES if " and " in shape and "\\n" in shape),
)  # fmt: skip


def text_of(shape: str, length: int) -> str:
    """A text of a shape."""
    before, unit, behind = SHAPES[shape]
    return before + unit * (length // len(unit)) + behind


def seconds(scan: Scan, text: Any, tries: int = 1) -> float:
    """Of processor time; the least of some tries."""
    found = []
    for _ in range(tries):
        begin = time.process_time()
        scan(text)
        found.append(time.process_time() - begin)
    return min(found)


def growth(scan: Scan, make: Callable[[int], Any], size: int = SMALL) -> list[float]:
    """How much more time each doubling takes, up to the first that is well below the square."""
    found: list[float] = []
    before = seconds(scan, make(size))
    if before >= QUICK:
        before = seconds(scan, make(size), tries=2)
    while before >= QUICK and len(found) < DOUBLINGS:
        size *= 2
        after = seconds(scan, make(size))
        if after >= MOST * before:
            after = seconds(scan, make(size), tries=2)
        found.append(after / before)
        if found[-1] < MOST:
            break
        before = after
    return found


def is_quadratic(found: list[float]) -> bool:
    return len(found) == DOUBLINGS and min(found) >= MOST


def slow_shapes(scan: Scan, size: int = SMALL, shapes: Iterable[str] = SHAPES) -> list[str]:
    """The shapes for which a scanner is not linear."""
    slow = []
    for shape in shapes:
        found = []
        for _ in range(3):  # other programs on the processor can disturb some
            found = growth(scan, lambda length, shape=shape: text_of(shape, length), size)
            if not is_quadratic(found):
                break
        else:
            slow.append(f"{shape}: {', '.join(f'{times:.1f}' for times in found)} times")
    return slow


# --- documents, filled by a model that answers with what it is asked


def filled(document: Document, loses: bool) -> bytes:
    """A document with translations that are their sources; one that `loses` codes has them put beside their words."""
    steps = translation_steps(document, "en", markers=False, again=True)
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send([_answer(text, wanted.aligned, loses) for text in wanted.texts])
    except StopIteration as end:
        return document.filled(targets_of(end.value))


def _answer(text: str, aligned: bool, loses: bool) -> SentenceTranslation:
    answer = text if aligned or not loses else "a"
    links = frozenset((i, i) for i in range(len(text.split()))) if aligned else None
    return SentenceTranslation(answer, log_prob=-0.1, n_tokens=(0, len(text)), links=links)


def document(name: str, content: Callable[[str], str | bytes] = str, loses: bool = False) -> Scan:
    """Reads, fills and writes a file of this name, or refuses it."""

    def scan(text: str) -> None:
        data = content(text)
        with suppress(UserError):
            filled(parse_document(name, data.encode() if isinstance(data, str) else data, ("en", "de")), loses)

    return scan


def in_po(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'msgid "{quoted}"\nmsgstr ""\n'


def in_xliff(text: str) -> str:
    unit = f'<trans-unit id="1"><source>{xml(text)}</source></trans-unit>'
    return f'<xliff version="1.2"><file source-language="en"><body>{unit}</body></file></xliff>'


def in_tmx(text: str) -> str:
    unit = f'<tu><tuv xml:lang="en"><seg>{xml(text)}</seg></tuv><tuv xml:lang="de"><seg>a</seg></tuv></tu>'
    return f'<tmx version="1.4"><header srclang="en"/><body>{unit}</body></tmx>'


def xml(text: str) -> str:
    return escape(text.replace("\0", ""))


def docx(body: str) -> bytes:
    """A Word document with these paragraphs."""
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>')
    return file.getvalue()


def in_docx(text: str) -> bytes:
    return docx(f"<w:p><w:r><w:t>{xml(text)}</w:t></w:r></w:p>")


@cache
def tokenizer(subword: str) -> Tokenizer:
    """One that has learnt little."""
    texts = ["a dog runs . the dog sleeps !", "aaaaaaaa bbbb", "漢字 &amp; <a>"] * 20
    return Tokenizer.train(texts, TranslationData(subword=subword, vocab_size=300), ["<2de>"])


GLOSSARY = Glossary([Term("a a a a a", "b"), Term("a b", "c"), Term("漢" * 20, "d"), Term("A", "A")])

SCANNERS: dict[str, Scan] = {
    "placeholders": lambda text: with_codes((text,)),
    "placeholders of reStructuredText": lambda text: with_codes((text,), "rst"),
    "placeholders of files in reStructuredText": lambda text: with_codes((text,), "restructuredtext"),
    "placeholders of extensions": lambda text: with_codes((text,), "extension"),
    "placeholders of Markdown": lambda text: with_codes((text,), "markdown"),
    "added placeholders": lambda text: adds_codes((text,), (text,), "rst"),
    "choices": lambda text: is_icu_choice((text,)),
    "quoted choices": lambda text: is_icu_choice((text,), "icu"),
    "the same placeholders": lambda text: same_placeholders((text,), (text,), "icu"),
    **{f"placeholders of {name}": lambda text, name=name: with_codes((text,), name) for name in DIALECTS},
    "sentences": lambda text: split_into_sentences((text,), "en"),
    "sentences of Japanese": lambda text: split_into_sentences((text,), "ja"),
    "sentences with codes": lambda text: split_into_sentences(with_codes((text,)), "en"),
    "texts of a request": lambda text: segment_text(text, "en"),
    "doubts": lambda text: quality_warnings((text,), (text + "b",), -0.1),
    "repetitions": lambda text: is_repetitive(text.split()),
    ".html": document("a.html"),
    ".html with lost codes": document("a.html", loses=True),
    ".html in an attribute": document("a.html", lambda text: f'<p>a <img alt="{escape(text)}"> b</p>'),
    ".md": document("a.md"),
    ".md with lost codes": document("a.md", loses=True),
    ".rst": document("a.rst"),
    ".rst with lost codes": document("a.rst", loses=True),
    ".txt": document("a.txt"),
    ".srt": document("a.srt"),
    ".srt of one cue": document("a.srt", lambda text: f"1\n00:00:01,000 --> 00:00:02,000\n{text}"),
    ".vtt": document("a.vtt", lambda text: f"WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n{text}"),
    ".properties": document("a.properties"),
    ".properties of one text": document("a.properties", lambda text: f"a={text}"),
    ".json": document("a.json"),
    ".json of one text": document("a.json", lambda text: json.dumps({"a": text})),
    ".json of one text in a list": document("a.json", lambda text: json.dumps([text, {text: text}])),
    ".po": document("a.po"),
    ".po of one text": document("a.po", in_po),
    ".po with lost codes": document("a.po", in_po, loses=True),
    ".xliff": document("a.xliff"),
    ".xliff of one text": document("a.xliff", in_xliff),
    ".tmx of one text": document("a.tmx", in_tmx),
    ".docx of one text": document("a.docx", in_docx),
    "terms": GLOSSARY.matches,
    "missing terms": lambda text: GLOSSARY.missing(text, text),
    "a term": lambda text: contains_term(text, "a a a"),
    "words": scripts.split_words,
    "letters": scripts.latin_length,
    "texts in a row": lambda text: scripts.join_sentences(text.split(" ")),
    "clean texts": clean_text,
    "parts": lambda text: split_text(clean_text(text), lambda part: len(part) < 50),
    "keys of sentences": sentence_key,
    "words of the tokenizer": cut,
    "BPE": lambda text: tokenizer("bpe").encode_batch([text]),
    "BPE and back": lambda text: tokenizer("bpe").decode(tokenizer("bpe").encode(text)),
    "BPE by the library": lambda text: tokenizer("bpe").encode_with_starts(text),
    "BPE with dropout": lambda text: tokenizer("bpe").encode_with_dropout(text, 0.1, 1),
    "unigram": lambda text: tokenizer("unigram").encode_batch([text]),
    "faults of characters": lambda text: [
        characters.position(text, fault) for fault in characters.check_characters(text)[0]
    ],
    "transcripts": transcripts.normalize_transcript,
    "answers": answers.normalize_answer,
    "what BLEU cuts": lambda text: bleu.bleu_tokenizer([text]),
    "languages": lambda text: detect_languages(text, ["en", "de"]),
}


@pytest.mark.parametrize("name", SCANNERS)
def test_a_scanner_takes_time_in_proportion_to_its_text(name: str) -> None:
    size, shapes = (SMALL // 2, OF_DOCUMENTS) if name.startswith(".") else (SMALL, tuple(SHAPES))
    turn = list(SCANNERS).index(name)
    shapes = shapes if ALL else shapes[turn % 4 :: 4]  # otherwise each scanner gets a quarter of them
    assert slow_shapes(SCANNERS[name], size, shapes) == []


# --- documents of many units, and texts of many codes: what is copied or looked through once for each is as slow


MANY: dict[str, tuple[str, Callable[[int], str | bytes]]] = {
    "elements of a page": ("a.html", lambda n: "<p>a b</p>" * n),
    "tags around a text": ("a.html", lambda n: "<b></b><img>" * n + "a b" + "<i></i>" * n),
    "pictures in a paragraph": ("a.html", lambda n: "<p>a " + "<img alt='a b'> c " * n + "</p>"),
    "bold words": ("a.html", lambda n: "<p>" + "a <b>b</b> c " * n + "</p>"),
    "paragraphs": ("a.md", lambda n: "a *b* [c](d)\n\n" * n),
    "cells": ("a.md", lambda n: "|a" * n + "|\n" + "|-" * n + "|\n" + "|a b" * n + "|\n"),
    "items": ("a.rst", lambda n: "- a *b*\n\n  c\n\n" * n),
    "lines": ("a.txt", lambda n: "a b\n" * n),
    "cues": ("a.srt", lambda n: "1\n00:00:01,000 --> 00:00:02,000\na b\n\n" * n),
    "lines of a cue": ("a.srt", lambda n: "1\n00:00:01,000 --> 00:00:02,000\n" + "a b\n" * n),
    "properties": ("a.properties", lambda n: "a=a {0}\n" * n),
    "messages": ("a.json", lambda n: json.dumps(["a {b}"] * n)),
    "entries": ("a.po", lambda n: 'msgid "a"\nmsgstr ""\n\n' * n),
    "lines of an entry": ("a.po", lambda n: 'msgid ""\n' + '"a b"\n' * n + 'msgstr ""\n'),
    "placeholders": ("a.po", lambda n: f'msgid "{"a %s b " * n}"\nmsgstr ""\n'),
    "different placeholders": ("a.po", lambda n: in_po(" ".join(f"a {{b{i}}}" for i in range(n)))),
    "units of XLIFF": ("a.xliff", lambda n: in_xliff("a").replace("<trans-unit", XLIFF_UNIT * n + "<trans-unit")),
    "units on lines": ("a.xliff", lambda n: in_xliff("a").replace("<trans", f"\n  {XLIFF_UNIT}" * n + "<trans")),
    "units of a memory": ("a.tmx", lambda n: in_tmx("a").replace("<tu>", TMX_UNIT * n + "<tu>")),
    "paragraphs of Word": ("a.docx", lambda n: docx("<w:p><w:r><w:t>a b</w:t></w:r></w:p>\n" * n)),
    "runs of Word": ("a.docx", lambda n: docx("<w:p>" + BOLD * n + "</w:p>")),
    "objects of Word": ("a.docx", lambda n: docx(f"<w:p>{BOLD}" + "<w:r><w:tab/></w:r>" * n + f"{BOLD}</w:p>")),
}  # fmt: skip
XLIFF_UNIT = '<trans-unit id="1"><source>a b</source></trans-unit>'
TMX_UNIT = '<tu><tuv xml:lang="en"><seg>a b</seg></tuv></tu>'
BOLD = "<w:r><w:t>a </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>b </w:t></w:r>"


@pytest.mark.parametrize("name", MANY)
def test_a_document_takes_time_in_proportion_to_what_is_in_it(name: str) -> None:
    file, make = MANY[name]
    for loses in (False, True):
        scan = document(file, lambda data: data, loses)
        assert not all(is_quadratic(growth(scan, make, 100)) for _ in range(3)), loses


# --- regular expressions

PACKAGES = (
    *("documents", "evaluate", "models", "runtime.search", "runtime.tokenizers", "serve", "text", "view"),
    *("pytorch.data", "pytorch.inspect", "pytorch.search"),
)
AT_THE_BEGINNING = (  # which are only tried where a text begins
    "text.files.split.COUNT_PATTERN", "text.files.split.SHARE_PATTERN", "pytorch.data.corruption.FULL_STOP",
    "documents.formats.po.STRING", "documents.formats.word.UNSEEN",
    "text.files.file_checks.LANGUAGE_CODE", "text.files.file_checks.MARKUP", "text.files.links.LINK",
    "documents.formats.markdown_dialects.ALONE", "documents.formats.rst.FIELD",
    "documents.formats.rst.DIRECTIVE_OPTION",
    "documents.formats.rst.SIMPLE_TABLE", "documents.formats.rst.BLOCK", "documents.formats.rst.OBJECT",
    "documents.markup.inline_boundaries.INLINE",
    "documents.formats.markdown.BLOCK", "documents.formats.markdown_dialects.DIRECTIVE",
    "documents.formats.html_pieces.FIRST_TAG",
    "documents.formats.epub.NAME", "documents.formats.markdown_titles.IN_LINK",
    "documents.formats.json_messages.PLURAL_KEY", "documents.formats.resx.NO_TEXT",
    "documents.formats.csv_table.QUOTED", "documents.formats.subtitles.LIKE_TIMES",
    "documents.passages.FRONT_MATTER", "documents.formats.properties.KEY", "documents.formats.subtitles.TIMES",
    "documents.formats.subtitles.SPEAKER",
    "documents.markup.markup.DECLARED_ENCODING", "documents.formats.unsupported_types.BEGINNING",
    "models.translation.target_language.TAG", "documents.formats.rails.PROPERTIES", "documents.formats.rails.HEADER",
    "documents.formats.unsupported_types.LINE_PATTERNSXML or HTML",
    "documents.formats.unsupported_types.LINE_PATTERNSresources of a program", "text.language_codes.PAIR_PATTERN",
)  # fmt: skip
IN_XML = (  # of a file that expat has found to be XML: what begins there also ends
    "documents.markup.markup.END_TAG", "documents.markup.markup.START_TAG", "documents.markup.markup.TOKEN",
    "documents.formats.json_messages.TOKEN",  # and of one that is JSON
)  # fmt: skip
BOUNDED = (  # by what calls them
    "documents.formats.html_page.CHARSET",  # the first 2,048 bytes of a file
    "evaluate.transcripts.PARENTHESES",  # what is before the last closing bracket
    "evaluate.transcripts.BRACKETS",
)


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The regular expressions of the modules of `PACKAGES`, by the names they have there."""
    for package in PACKAGES:
        folder = Path(headwise.__path__[0], *package.split("."))
        for found in pkgutil.walk_packages([str(folder)], f"headwise.{package}."):
            name = found.name.removeprefix("headwise.")
            for key, value in vars(importlib.import_module(found.name)).items():
                values = value if isinstance(value, dict) else {"": value}
                yield from ((f"{name}.{key}{k}", p) for k, p in values.items() if isinstance(p, re.Pattern))
        for file in folder.rglob("*.py"):
            for n, pattern in enumerate(written_into_calls(ast.parse(file.read_text(encoding="utf-8")))):
                yield f"{package}/{file.name} {n}", re.compile(pattern)


def written_into_calls(tree: ast.AST) -> Iterator[str]:
    """The patterns of calls such as `re.sub("a+", ...)`; not those of `re.match` and `re.fullmatch`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                ast.Attribute(ast.Name("re"), "sub" | "search" | "split" | "findall" | "finditer"),
                [ast.Constant(str(pattern)), *_],
            ):
                yield pattern


def test_regular_expressions_take_time_in_proportion_to_a_text() -> None:
    slow, seen = [], set[Any]()
    assert {*AT_THE_BEGINNING, *IN_XML, *BOUNDED} <= {name for name, _ in patterns()}, "they have other names now"
    for name, pattern in [*patterns(), ("words", word_pattern()), ("joined words", word_pattern("-"))]:
        if name in (*IN_XML, *BOUNDED) or pattern in seen:
            continue
        seen.add(pattern)
        slow += [f"{name}, {shape}" for shape in slow_shapes(finder(pattern, name in AT_THE_BEGINNING))]
    assert slow == []


def finder(pattern: re.Pattern[Any], at_the_beginning: bool) -> Scan:
    """Looks for a pattern everywhere in a text."""

    def scan(text: str) -> None:
        subject = text.encode() if isinstance(pattern.pattern, bytes) else text
        if at_the_beginning:
            pattern.match(subject)
        else:
            for _ in pattern.finditer(subject):
                pass

    return scan


def test_the_square_of_a_text_is_noticed() -> None:
    for scan, size, shape in (
        (lambda text: re.findall(r"[\w.+-]+@", text), 2000, "one long word"),
        (lambda text: sum(len(text[i:].upper()) for i in range(len(text))), 4000, "one long word"),
        (lambda text: re.findall(r"%[-+#0]*\d*s", text), 2000, "'%' and '0'"),
    ):
        make = partial(text_of, shape)
        assert any(is_quadratic(growth(scan, make, size)) for _ in range(20)), shape
