"""Suggested translations of clients, in a translation memory (.tmx) that `train` and other tools read.

The file is only appended to, while the server holds its lock. Not here: the request (`routes`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape

from headwise.errors import UserError
from headwise.serve.parameters import RequestError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MOST_BYTES = 64 * 1024 * 1024
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="headwise" creationtoolversion="1" segtype="block" o-tmf="headwise" adminlang="en"
  srclang="*all*" datatype="plaintext"/>
<body>
"""
TAIL = "</body>\n</tmx>\n"  # replaced by a new unit and itself


class Suggestions:
    """A file of suggestions; create it with `suggestions_file`."""

    def __init__(self, descriptor: int, most: int = MOST_BYTES) -> None:
        self.descriptor, self.most = descriptor, most

    def add(self, source: str, target: str, languages: tuple[str, str]) -> None:
        """Append a unit, with one write.

        Raises:
            RequestError: a text has characters that XML does not allow, or the file is full or cannot be written.
        """
        for name, text in (("q", source), ("s", target)):
            if not text.strip() or not all(map(_is_xml_character, text)):
                raise RequestError(400, f"Invalid request: {name} is empty or has control characters")
        variants = _variant(languages[0], source) + _variant(languages[1], target)
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        unit = f'<tu creationdate="{now}">{variants}</tu>\n{TAIL}'.encode()
        end = os.fstat(self.descriptor).st_size - len(TAIL)
        if end + len(unit) > self.most:
            raise RequestError(507, "the server stores no more suggestions")
        _write_at(self.descriptor, unit, end)


@contextmanager
def suggestions_file(path: str) -> Iterator[Suggestions | None]:
    """The suggestions in a file, which is created if needed; None without a path.

    Raises:
        UserError: the file cannot be opened, was not written by a server, or another server writes to it.
    """
    if not path:
        yield None
        return
    if not path.endswith(".tmx"):
        raise UserError(f"--suggestions {path}: a translation memory is written; its name must end with .tmx")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise UserError(f"--suggestions {path}: {error.strerror}") from None
    try:
        _lock_suggestions(path, descriptor)
        _begin_or_check(path, descriptor)
        yield Suggestions(descriptor)
    finally:
        os.close(descriptor)


def _lock_suggestions(path: str, descriptor: int) -> None:
    if fcntl:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"--suggestions {path}: another server writes to this file; give each its own") from None


def _begin_or_check(path: str, descriptor: int) -> None:
    """Begin an empty file; `UserError` for one that does not end as the server left it."""
    size = os.fstat(descriptor).st_size
    if not size:
        return _write_at(descriptor, (HEAD + TAIL).encode(), 0)
    content = Path(path).read_bytes()
    if not (content.startswith(HEAD.encode()) and content.endswith(TAIL.encode())):
        raise UserError(f"--suggestions {path}: not a file of suggestions; choose the name of a new file")


def _write_at(descriptor: int, content: bytes, offset: int) -> None:
    """Write all of it; a file that cannot be extended stays as it was."""
    size = os.fstat(descriptor).st_size
    before = _read_at(descriptor, offset, size - offset)
    try:
        _write_fully(descriptor, content, offset)
    except OSError as error:
        _write_fully(descriptor, before, offset)
        os.ftruncate(descriptor, size)
        raise RequestError(507, f"the suggestion cannot be stored: {error.strerror}") from None


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, size)


def _write_fully(descriptor: int, content: bytes, offset: int) -> None:
    os.lseek(descriptor, offset, os.SEEK_SET)
    while content:
        content = content[os.write(descriptor, content) :]


def _variant(language: str, text: str) -> str:
    content = escape(text, {"\r": "&#13;"})  # a bare one would be read as a line feed
    return f'<tuv xml:lang="{language}"><seg>{content}</seg></tuv>'


def _is_xml_character(character: str) -> bool:
    """https://www.w3.org/TR/xml/#charsets."""
    return (
        character in "\t\n\r"
        or " " <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character > "\uffff"
    )
