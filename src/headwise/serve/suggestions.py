"""Suggested translations of clients, in a translation memory (.tmx) that `train` and other tools read.

The file is replaced by a longer one for each suggestion, while the server holds its lock. See `routes` for the request.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from glob import escape as escape_glob
from pathlib import Path
from threading import Lock
from xml.sax.saxutils import escape

from headwise.errors import UserError
from headwise.lock import lock_file
from headwise.serve.parameters import RequestError

MOST_BYTES = 64 * 1024 * 1024
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="headwise" creationtoolversion="1" segtype="block" o-tmf="headwise" adminlang="en"
  srclang="*all*" datatype="plaintext"/>
<body>
"""
TAIL = "</body>\n</tmx>\n"  # behind all units
PART = 1024 * 1024  # bytes that are copied at once
FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Suggestions:
    """A file of suggestions; create it with `suggestions_file`. `add` may be called on several threads."""

    def __init__(self, path: Path, descriptor: int, most: int = MOST_BYTES) -> None:
        self.path, self.descriptor, self.most = path, descriptor, most
        self._adding = Lock()

    def add(self, source: str, target: str, languages: tuple[str, str]) -> None:
        """Append a unit.

        Raises:
            RequestError: a text has characters that XML does not allow, or the file is full or cannot be written.
        """
        for name, text in (("q", source), ("s", target)):
            if not text.strip() or not all(map(_is_xml_character, text)):
                raise RequestError(400, f"Invalid request: {name} is empty or has control characters")
        variants = _variant(languages[0], source) + _variant(languages[1], target)
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        unit = f'<tu creationdate="{now}">{variants}</tu>\n{TAIL}'.encode()
        with self._adding:
            try:
                if not os.path.samestat(os.fstat(self.descriptor), self.path.stat()):
                    raise RequestError(507, "another program has replaced the file of suggestions")
                end = os.fstat(self.descriptor).st_size - len(TAIL)
                if end + len(unit) > self.most:
                    raise RequestError(507, "the server stores no more suggestions")
                self.descriptor = _replace(self.path, self.descriptor, end, unit)
            except OSError as error:
                raise RequestError(507, f"the suggestion cannot be stored: {error.strerror}") from None


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
    real = Path(path).resolve()  # of a link, the file is replaced
    try:
        descriptor = os.open(real, FLAGS, 0o600)
        if lock_file(descriptor) is False or not os.path.samestat(os.fstat(descriptor), os.stat(real)):
            raise UserError(f"--suggestions {path}: another server writes to this file; give each its own")
        for draft in real.parent.glob(f".{escape_glob(real.name)}.*"):  # of a server that was killed
            draft.unlink()
        content, head, tail = real.read_bytes(), HEAD.encode(), TAIL.encode()
        if not head.startswith(content[: len(head)]):
            raise UserError(f"--suggestions {path}: not a file of suggestions; choose the name of a new file")
        if not content.endswith(tail):  # new, or left by a server that was killed while it wrote
            complete = max(content.rfind(b"</tu>\n") + len(b"</tu>\n"), len(head)) if len(content) > len(head) else 0
            descriptor = _replace(real, descriptor, complete, tail if complete else head + tail)
    except OSError as error:
        raise UserError(f"--suggestions {path}: {error.strerror}") from None
    suggestions = Suggestions(real, descriptor)
    try:
        yield suggestions
    finally:
        os.close(suggestions.descriptor)


def _replace(path: Path, before: int, end: int, content: bytes) -> int:
    """Replace a file by its beginning up to `end` and this content, at once; returns the new descriptor, with the lock.

    At any time the file is the old or the new one, also if this process is killed.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, FLAGS | os.O_TRUNC, stat.S_IMODE(os.fstat(before).st_mode))
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file, path.open("rb") as old:
                while end > 0 and (part := old.read(min(end, PART))):
                    end -= file.write(part)
                file.write(content)
            lock_file(descriptor)
            os.replace(draft, path)
        except BaseException:
            os.close(descriptor)
            raise
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    os.close(before)
    return descriptor


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
