"""Texts of a file that are never translated are counted, with their lines."""

from headwise.documents.not_translated import count_kinds, not_translated, not_translated_summary
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.reading import parse_document
from headwise.documents.unit import Skipped, plain

CATALOGUE = """msgid "A"
msgstr ""

#~ msgid "Gone"
#~ msgstr ""
"""
MEMORY = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>A</seg></tuv><tuv xml:lang="de"><seg>B</seg></tuv></tu>
<tu><tuv xml:lang="de"><seg>only here</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg> </seg></tuv></tu></body></tmx>
"""
EXCHANGE = """<xliff version="1.2"><file source-language="en" target-language="de"><body>
<trans-unit id="1" translate="no"><source>Headwise</source></trans-unit>
<trans-unit id="2"><source>12</source></trans-unit>
<trans-unit id="3"/></body></file></xliff>
"""
SUBTITLES = """WEBVTT

NOTE by the translator
over two lines

00:01.000 --> 00:02.000
A dog
"""
EXTENSION = """{"a": {"message": "A dog", "description":
"an animal", "placeholders": {"n": {"content": "$1"}}}}"""
ARB = """{"@@locale": "en", "hi": "Hi",
"@hi": {"description": "greets"}}"""


def kinds(name: str, content: str) -> list[tuple[int, str]]:
    return [(one.line, one.kind) for one in not_translated(parse_document(name, content.encode(), ("en", "de")))]


def test_every_format_counts_what_it_leaves_alone() -> None:
    assert kinds("a.po", CATALOGUE) == [(4, "obsolete entry")]
    assert kinds("a.po", 'msgid "%"\nmsgstr ""\n\nmsgid "5"\nmsgstr "5"\n') == [(1, "text without letters")]
    assert kinds("a.tmx", MEMORY) == [(3, "unit without the source language"), (4, "empty unit")]
    assert kinds("a.xlf", EXCHANGE) == [(2, 'translate="no"'), (4, "unit without a source")]
    assert kinds("a.vtt", SUBTITLES) == [(3, "note")]
    assert kinds("a.json", EXTENSION) == [(2, "metadata")]
    assert kinds("a.arb", ARB) == [(1, "metadata"), (2, "metadata")]
    assert kinds("a.txt", "A line\n\n12\n") == [(3, "text without letters")]


def test_a_reader_names_the_characters_that_it_skips() -> None:
    characters = Characters("a", b"one\n`two`\n")
    document = Passages(
        characters,
        [TextPassage(0, 3, ("one",), plain)],
        skipped=[characters.skipped("code", 4, 9)],
    )
    assert not_translated(document) == [Skipped("code", 2, "`two`")]


def test_a_summary_is_one_line() -> None:
    found = [Skipped("note", 2), Skipped("code", 3), Skipped("note", 4000)]
    assert count_kinds(found) == {"note": 2, "code": 1}
    assert not_translated_summary(found) == "not translated: note: 2 (first in line 2); code: 1 (line 3)"
    assert not_translated_summary([]) == ""
