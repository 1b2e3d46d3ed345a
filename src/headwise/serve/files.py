"""Uploaded files, parsed by `localisation`, and the names of translated ones. See `storage` for their place on disk."""

import re
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import PurePath
from urllib.parse import quote
from zipfile import BadZipFile, ZipFile

from headwise.documents.reading import ENDINGS, parse_document
from headwise.documents.unit import Document, without_inline_codes
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
        raise RequestError(400, f"Invalid request: file format not supported; known: {', '.join(ENDINGS)}")
    with suppress(BadZipFile, OSError, NotImplementedError), ZipFile(BytesIO(content)) as archive:
        check_limit(archive, sum(one.file_size for one in archive.infolist()), MAX_UNPACK_RATIO * limit)
    document = parse_document(name, content, languages)
    return check_limit(document, sum(len(without_inline_codes(unit.source)) for unit in document.units), limit)


def stored_name(name: str) -> str:
    """A name for the address of a file: its own without folders, signs that have a meaning, and its beginning.

    >>> stored_name("../a b&c.txt"), len(stored_name("a" * 500 + ".txt"))
    ('a_b_c.txt', 150)
    """
    safe = re.sub(r"[^\w.-]", "_", PurePath(name.replace("\\", "/")).name)
    while len(safe.encode()) > MAX_NAME_BYTES:
        safe = safe[1:]  # keeps the ending
    return safe


def attachment(name: str) -> str:
    """The Content-Disposition of a download: the name in ASCII, and in full (RFC 6266).

    >>> print(attachment("maße.txt"))
    attachment; filename="ma_e.txt"; filename*=UTF-8''ma%C3%9Fe.txt
    """
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
