"""Files that are neither documents (`FORMATS`) nor plain text: line by line, their keys and tags would be translated.

They are told by their names and by how they begin. Names of languages are no types: `train.cs` is Czech. Not here:
documents that are no such file as their ending says, which their own readers refuse.
"""

import re
from pathlib import PurePath

from sightline.errors import UserError
from sightline.localisation import FORMATS

HEAD = 1 << 16  # bytes of a file that are looked at
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz")
NAMES = {
    "XML": "xml resx resw xsl xslt dita docbook plist svg tbx wxl xhtm idml mif ttml dfxp txml ttx "
    "mxliff mqxliff sdlxliff",
    "resources of a program": "yml yaml toml ini cfg conf strings stringsdict xcstrings ftl lang rc php js jsx tsx "
    "json5 jsonc py java kt swift vue svelte css scss sql qm",
    "a table": "csv tsv jsonl ndjson xls xlsx ods parquet",
    "a document": "tex ltx bib rst adoc asciidoc textile org wiki mediawiki ipynb rtf odt "
    "odp doc ppt pptx pdf epub typ",
    "subtitles of another kind": "sbv ass ssa sub",
    "an archive, or a picture, sound or program": "bz2 xz zst zip 7z tar tgz rar png jpg jpeg gif webp wav "
    "flac mp3 mp4 exe",
}
BY_NAME = {ending: kind for kind, endings in NAMES.items() for ending in endings.split()}
BEGINS = {  # what a file begins with
    "XML or HTML": r"<\?xml|(?i:<!doctype|<html[\s>])|<(?:xliff|tmx|resources|plist|svg|TS)[\s>]",
    "JSON": r"\{\s*\"[^\"\n]*\"\s*:|\[\s*\{\s*\"|[\[{]\s*\n\s*[\[{\"]",
    "a catalogue of gettext": r"(?:#[^\n]*\n|\s)*+msg(?:id|ctxt)\s*\"",
    "subtitles": r"WEBVTT[ \t]*\r?\n|\d+\s*\n\d\d:\d\d:\d\d,\d{3} -->",
    "a PDF": r"%PDF-",
    "RTF": r"\{\\rtf",
    "LaTeX": r"(?:%[^\n]*\n|\s)*+\\(?:documentclass|begin\{|section|chapter)",
    "YAML": r"---[ \t]*\r?\n",
}
BEGINNING = re.compile("|".join(f"(?P<k{n}>{pattern})" for n, pattern in enumerate(BEGINS.values())))
LINES = {  # what more than half of its lines are, where it has three or more
    "XML or HTML": re.compile(r"<[^<>]*>(?:.*>)?$"),
    "resources of a program": re.compile(r"\"[^\"]*\"\s*=\s*\".*\"\s*;$|[\w.-]+\s*=\s*\S.*$"),
}


def refuse_by_name(path: str) -> None:
    """`UserError` for a name that is of another type than lines of text.

    Raises:
        UserError: it is; or it is a document that is compressed.
    """
    name = PurePath(path.lower())
    inner = PurePath(name.stem) if name.suffix in COMPRESSED else name
    if inner != name and inner.suffix in {ending for endings in FORMATS.values() for ending in endings} - {".txt"}:
        raise UserError(f"{path}: is a compressed document; unpack it and translate {PurePath(path).stem}")
    for suffix in {name.suffix[1:], inner.suffix[1:]} & BY_NAME.keys():
        raise _unsupported(path, f"{BY_NAME[suffix]} (.{suffix})")


def refuse_by_content(path: str, head: bytes) -> None:
    """`UserError` for a file that begins as no lines of text do; `head` has its first bytes, `HEAD` at most."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return  # UTF-16, which who reads it says
    if 100 * head.count(0) > len(head):
        raise _unsupported(path, "no text: every hundredth byte is 0, or more")
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
    if found := BEGINNING.match(text):
        raise _unsupported(path, list(BEGINS)[int(str(found.lastgroup)[1:])])
    lines = [
        line for line in map(str.strip, text[: len(text) if len(head) < HEAD else text.rfind("\n")].split("\n")) if line
    ]
    for kind, pattern in LINES.items():
        if len(lines) > 2 and 2 * sum(pattern.match(line) is not None for line in lines) > len(lines):
            raise _unsupported(path, kind)


def _unsupported(path: str, kind: str) -> UserError:
    supported = ", ".join(ending for endings in FORMATS.values() for ending in endings)
    why = "is not supported: its tags and keys would be translated"
    ways = f"Supported are lines of text and {supported}; --lines translates its lines as they are"
    return UserError(f"{path}: is {kind}, which {why}. {ways}")
