"""Uploaded files, parsed by `localisation`, and translated files until they are downloaded."""

import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePath
from urllib.parse import quote
from zipfile import BadZipFile, ZipFile

from headwise.localisation.reading import ENDINGS, parse_document
from headwise.localisation.unit import Document, without_inline_codes
from headwise.serve.parameters import RequestError, check_limit

MAX_UNPACK_RATIO = 16  # unpacked size of an archive relative to the request limit
MAX_NAME_BYTES = 150  # of a name in UTF-8, the end of a longer one


def parse_upload(name: str, content: bytes, languages: Sequence[str], limit: int) -> Document:
    """Parse an uploaded file; at most `limit` characters may be translated.

    Raises:
        RequestError: an unsupported type (LibreTranslate's message), or too large.
        UserError: an invalid file; the message names the line.
    """
    if PurePath(name).suffix.lower() not in ENDINGS:
        raise RequestError(400, f"Invalid request: file format not supported (known: {', '.join(ENDINGS)})")
    with suppress(BadZipFile, OSError, NotImplementedError), ZipFile(BytesIO(content)) as archive:
        check_limit(archive, sum(one.file_size for one in archive.infolist()), MAX_UNPACK_RATIO * limit)
    document = parse_document(name, content, languages)
    return check_limit(document, sum(len(without_inline_codes(unit.source)) for unit in document.units), limit)


@dataclass
class FileStore:
    """Translated files under random names, for a limited time."""

    folder: Path
    seconds: float = 1200.0
    most: int = 200  # files; the oldest is deleted first

    def put(self, name: str, content: bytes) -> str:
        """Store a file; returns the name to download it by, which ends with its own."""
        self._clear(self.most - 1)
        last = PurePath(name.replace("\\", "/")).name
        safe = re.sub(r"[^\w.-]", "_", last)
        while len(safe.encode()) > MAX_NAME_BYTES:
            safe = safe[1:]  # keeps the ending
        key = secrets.token_hex(16)
        (self.folder / key).write_bytes(content)
        return f"{key}.{safe}"

    def take(self, key: str) -> tuple[str, bytes]:
        """The name and the content; `RequestError` if the file does not exist any more."""
        number, _, name = key.partition(".")
        path = self.folder / number
        self._clear(self.most)
        try:
            if re.fullmatch(r"[0-9a-f]{32}", number) and name:
                return name, path.read_bytes()
        except OSError:
            pass
        raise RequestError(404, "no such file, or it has expired")

    def _clear(self, most: int) -> None:
        """Delete expired files, and the oldest until `most` are left."""
        files = sorted((path.stat().st_mtime, path) for path in self.folder.iterdir())
        for number, (changed, path) in enumerate(files):
            if changed < time.time() - self.seconds or number < len(files) - most:
                path.unlink(missing_ok=True)


def attachment(name: str) -> str:
    """The Content-Disposition of a download: the name in ASCII, and in full (RFC 6266).

    >>> print(attachment("maße.txt"))
    attachment; filename="ma_e.txt"; filename*=UTF-8''ma%C3%9Fe.txt
    """
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
