"""Files that are neither documents nor lines of text are refused, by their names and by how they begin."""

import gzip
import tarfile
from pathlib import Path

import pytest

from headwise.documents.formats.unsupported_types import HEAD_BYTES, check_content, check_file_name
from headwise.documents.reading import parse_document
from headwise.errors import UserError

NAMES = (
    "a.tex", "a.adoc", "a.mxliff",
    "a.tsv", "a.jsonl", "a.xz", "dir.d/a.ini",
)  # fmt: skip
TEXTS = (
    "a",
    "train.en",
    "train.de.gz",
    "train.cs",
    "train.pl",
    "a.txt",
    "a.txt.gz",
    "test.ts",
    "v1.0",
    "newstest2014-deen-src.de",
)
CONTENTS = {
    "strings.xml": b'<?xml version="1.0"?>\n<resources>\n<string name="a">A dog</string>\n</resources>\n',
    "no declaration": b"\n<resources>\n<string name='a'>A dog</string>\n</resources>\n",
    "a page": b"<!doctype html>\n<p>A dog",
    "elements": b"<a>A dog</a>\n<a>A cat</a>\nA bird\n",
    "Qt": b"<!DOCTYPE TS>\n<TS>\n",
    "JSON": b'{\n  "a": "A dog"\n}\n',
    "a list": b'[\n "a"\n]',
    "lines of JSON": b'{"a": 1}\n{"a": 2}\n',
    "gettext": b'# a\nmsgid ""\nmsgstr ""\n',
    "subtitles": b"1\n00:00:01,000 --> 00:00:02,000\nA dog\n",
    "WebVTT": b"WEBVTT\n\n00:01.000 --> 00:02.000\nA dog\n",
    "YAML": b"---\nen:\n  a: A dog\n",
    "Apple": b'"a" = "A dog";\n"b" = "A cat";\n/* c */\n"c" = "A bird";\n',
    "Fluent": b"a = A dog\nb-c = A cat\n# c\nd = A bird\n",
    "LaTeX": b"% a\n\\documentclass{article}\n",
    "PDF": b"%PDF-1.7\n",
    "RTF": b"{\\rtf1 a}",
    "a program": b"\x7fELF\0\0",
}
PLAIN = (
    "", "A dog runs.\n", "<2de> A dog runs.\n<2de> A cat.\n<2de> A bird.\n", "{name} is here\n",
    "<b>Hello</b> world\nA dog.\nA cat.\n",
    "[1] A dog.\n", "John: Hi!\nMary: \"Hi!\"\nJohn: A dog?\n", "- A dog\n- A cat\n", "1\n2\n3\n",
    "--- A dog\n", "# A dog\n", "100 %\n",
    "a\0" * 3 + "a" * 400, "x = 3 means that\nA dog\nA cat\n", "<unk>\n", "< 3 dogs >\nA dog\nA cat\n",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_another_type_is_refused_with_what_is_supported(name: str) -> None:
    with pytest.raises(UserError, match=r"is not supported: .*Supported are plain text and \.po.*--lines"):
        check_file_name(name)


def test_a_compressed_document_is_to_be_unpacked() -> None:
    with pytest.raises(UserError, match=r"^x/a\.po\.gz: is a compressed document; unpack it, then translate a\.po$"):
        check_file_name("x/a.po.gz")


@pytest.mark.parametrize("name", TEXTS)
def test_names_of_texts_are_no_types(name: str) -> None:
    check_file_name(name)


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_file_that_begins_as_another_type_is_refused_whatever_its_name(kind: str) -> None:
    with pytest.raises(UserError, match=r"^a\.txt: .* is not supported"):
        check_content("a.txt", CONTENTS[kind])
    with pytest.raises(UserError, match=r"^a\.txt: .* is not supported"):  # the server's way, and that of --sentences
        parse_document("a.txt", CONTENTS[kind].replace(b"\n", b"\r\n"))


@pytest.mark.parametrize("text", PLAIN)
def test_lines_of_text_are_not_refused(text: str) -> None:
    check_content("a.txt", text.encode())


def test_no_corpus_is_taken_for_another_type(shared_data: Path) -> None:
    names = ("multi30k", "tanaka-enja", "align", "metrics", "lm", "messy-tsv")
    files = [file for name in names for file in (shared_data / name).rglob("*") if file.is_file()]
    for file in files:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as opened:
            head = opened.read(HEAD_BYTES)
        if file.suffix not in (".json", ".jsonl"):
            check_content(str(file), head)


def test_catalogues_are_told_from_lines(shared_data: Path) -> None:
    with tarfile.open(shared_data / "pydocs" / "po-fr.tar.gz") as archive:
        for member in [member for member in archive if member.name.endswith(".po")][::20]:
            with pytest.raises(UserError, match="catalogue of gettext"):
                check_content("a.txt", archive.extractfile(member).read(HEAD_BYTES))  # type: ignore[union-attr]
