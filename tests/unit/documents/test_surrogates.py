"""Halves of characters, which files can contain as escapes or in some encodings, never leave a document."""

import pytest

from headwise.documents.reading import parse_document
from headwise.documents.unit import plain

FILES = {
    "a.json": (b'{"a":"May \\ud800 1"}', "May \ufffd 1"),
    "pair.json": (b'{"a":"May \\ud83d\\ude00 1"}', "May \U0001f600 1"),
    "swapped.json": (b'{"a":"May \\ude00\\ud83d 1"}', "May \ufffd\ufffd 1"),
    "key.json": (b'{"a\\udc00":"May 1"}', "May 1"),
    "a.arb": (b'{"a":"May \\udfff 1"}', "May \ufffd 1"),
    "a.xcstrings": (b'{"sourceLanguage":"en","version":"1.0","strings":{"May \\ud800 1":{}}}', "May \ufffd 1"),
    "a.properties": (b"a=May \\ud800 1\n", "May \ufffd 1"),
    "pair.properties": (b"a=May \\ud83d\\ude00 1\n", "May \U0001f600 1"),
    "a.strings": (b'"a" = "May \\Ud800 1";\n', "May \ufffd 1"),
    "a.yml": (b'en:\n  a: "May \\ud800 1"\n', "May \ufffd 1"),
    "strings.xml": (b'<resources><string name="a">May \\ud800 1</string></resources>', "May \ufffd 1"),
    "a.po": (
        b'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-7\\n"\n\nmsgid "May +2AA- 1"\nmsgstr ""\n',
        "May \ufffd 1",
    ),
    "a.html": (b"<p>May &#xd800; 1</p>", "May \ufffd 1"),
    "a.md": (b"May &#xd800; 1\n", None),
    "a.ftl": (b'a = May {"\\ud800"} 1\n', None),
    "a.vtt": (b"WEBVTT\n\n00:01.000 --> 00:02.000\nMay &#xd800; 1\n", None),
}


@pytest.mark.parametrize("name", FILES)
def test_texts_can_be_encoded_and_other_bytes_stay(name: str) -> None:
    content, text = FILES[name]
    document = parse_document(name, content, ("en", "de"))
    (unit,) = document.units
    assert text in (None, plain(unit.source))
    for one in (plain(unit.source), plain(unit.target), unit.key, *(left.text for left in document.skipped)):
        one.encode()
    if name != "a.po":  # the other bytes of UTF-7 have several spellings
        assert document.filled({}) == content
    filled = document.filled({0: unit.source})
    (again,) = parse_document(name, filled, ("en", "de")).units
    assert text in (None, plain(again.target or again.source))
