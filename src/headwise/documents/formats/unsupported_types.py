"""Recognises files that are neither documents (`FORMATS`) nor plain text, whose keys and tags would be translated.

They are recognised by name and by content. Language codes are not file types: `train.cs` is Czech. Documents with a
wrong ending are rejected by the reader of that format.
"""

import re
from pathlib import PurePath

from headwise.documents import FORMATS
from headwise.errors import UserError

HEAD_BYTES = 1 << 16  # bytes of a file that are inspected
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz")
ENDINGS_BY_KIND = {
    "XML": "xsl xslt dita docbook plist svg tbx wxl xhtm idml mif ttml dfxp txml ttx mxliff",
    "resources of a program": "toml ini cfg conf lang rc php js jsx tsx "
    "json5 jsonc py java kt swift vue svelte css scss sql qm",
    "a table": "tsv jsonl ndjson xls parquet",
    "a document": "tex ltx bib adoc asciidoc textile org wiki mediawiki ipynb rtf doc ppt pdf typ",
    "subtitles of another kind": "sbv ass ssa sub",
    "an archive, or a picture, sound or program": "bz2 xz zst zip 7z tar tgz rar png jpg jpeg gif webp wav "
    "flac mp3 mp4 exe",
}
KIND_BY_ENDING = {ending: kind for kind, endings in ENDINGS_BY_KIND.items() for ending in endings.split()}
BEGINNINGS = {  # patterns of the first bytes
    "XML or HTML": r"<\?xml|(?i:<!doctype|<html[\s>])|<(?:xliff|tmx|resources|plist|svg|TS)[\s>]",
    "JSON": r"\{\s*\"[^\"\n]*\"\s*:|\[\s*\{\s*\"|[\[{]\s*\n\s*[\[{\"]",
    "a catalogue of gettext": r"(?:#[^\n]*\n|\s)*+msg(?:id|ctxt)\s*\"",
    "subtitles": r"WEBVTT[ \t]*\r?\n|\d+\s*\n\d\d:\d\d:\d\d,\d{3} -->",
    "a PDF": r"%PDF-",
    "RTF": r"\{\\rtf",
    "LaTeX": r"(?:%[^\n]*\n|\s)*+\\(?:documentclass|begin\{|section|chapter)",
    "YAML": r"---[ \t]*\r?\n",
}
BEGINNING = re.compile("|".join(f"(?P<k{n}>{pattern})" for n, pattern in enumerate(BEGINNINGS.values())))
LINE_PATTERNS = {  # patterns of more than half of the lines, of three or more
    "XML or HTML": re.compile(r"<[^<>]*>(?:.*>)?$"),
    "resources of a program": re.compile(r"\"[^\"]*\"\s*=\s*\".*\"\s*;$|[\w.-]+\s*=\s*\S.*$"),
}


def check_file_name(path: str) -> None:
    """Check that a file name is not that of an unsupported type.

    Raises:
        UserError: an unsupported type, or a compressed document.
    """
    name = PurePath(path.lower())
    inner = PurePath(name.stem) if name.suffix in COMPRESSED else name
    if inner != name and inner.suffix in {ending for endings in FORMATS.values() for ending in endings} - {".txt"}:
        raise UserError(f"{path}: is a compressed document; unpack it, then translate {PurePath(path).stem}")
    for suffix in {name.suffix[1:], inner.suffix[1:]} & KIND_BY_ENDING.keys():
        raise _unsupported(path, f"{KIND_BY_ENDING[suffix]} (.{suffix})")


def check_content(path: str, head: bytes) -> None:
    """`UserError` if the first bytes of a file, at most `HEAD_BYTES`, are not lines of text."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return  # UTF-16 is reported by the reader
    if 100 * head.count(0) > len(head):
        raise _unsupported(path, "a binary file")
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
    if found := BEGINNING.match(text):
        raise _unsupported(path, list(BEGINNINGS)[int(str(found.lastgroup)[1:])])
    lines = [
        line
        for line in map(str.strip, text[: len(text) if len(head) < HEAD_BYTES else text.rfind("\n")].split("\n"))
        if line
    ]
    for kind, pattern in LINE_PATTERNS.items():
        if len(lines) > 2 and 2 * sum(pattern.match(line) is not None for line in lines) > len(lines):
            raise _unsupported(path, kind)


def _unsupported(path: str, kind: str) -> UserError:
    supported = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    why = "is not supported: its tags and keys would be translated"
    ways = f"Supported are plain text and {supported}; --lines translates it line by line"
    return UserError(f"{path}: {kind} {why}. {ways}")
