"""Files to translate, and the translated ones until they are fetched.

`FORMATS` says by its ending how a file becomes text and back; further formats are further rows. Not here: sentences
(`documents`).
"""

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PurePath

from sightline.serve.asked import Refused

TranslateText = Callable[[str, bool], Awaitable[str]]  # a text, and whether it is HTML
FileFormat = Callable[[bytes, TranslateText], Awaitable[bytes]]
BOM = b"\xef\xbb\xbf"


async def _plain(content: bytes, translate: TranslateText) -> bytes:
    return (await translate(_decoded(content), False)).encode("utf-8")


async def _markup(content: bytes, translate: TranslateText) -> bytes:
    return (await translate(_decoded(content), True)).encode("utf-8")


FORMATS: dict[str, FileFormat] = {".txt": _plain, ".html": _markup, ".htm": _markup}


def format_of(name: str) -> FileFormat:
    """By the ending of a file's name; `Refused` in LibreTranslate's words for any other."""
    found = FORMATS.get(PurePath(name).suffix.lower())
    if found is None:
        raise Refused(400, f"Invalid request: file format not supported (known: {', '.join(FORMATS)})")
    return found


def _decoded(content: bytes) -> str:
    try:
        return content.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Refused(400, f"Invalid request: the file is not UTF-8 (line {line})") from None


@dataclass
class Shelf:
    """Translated files, each under a name that nobody guesses, for some time."""

    folder: Path
    seconds: float = 1200.0
    most: int = 200  # files; the oldest goes first

    def put(self, name: str, content: bytes) -> str:
        """The name to fetch it by."""
        self._clear()
        safe = re.sub(r"[^\w.-]", "_", PurePath(name.replace("\\", "/")).name)[-100:]
        key = f"{secrets.token_hex(16)}.{safe}"
        (self.folder / key).write_bytes(content)
        return key

    def take(self, key: str) -> tuple[str, bytes]:
        """The file's own name and what it holds; `Refused` where there is no such file any more."""
        if not re.fullmatch(r"[0-9a-f]{32}\.[\w.-]{1,100}", key) or not (self.folder / key).is_file():
            raise Refused(404, "no such file, or it was not fetched in time")
        return key.partition(".")[2], (self.folder / key).read_bytes()

    def _clear(self) -> None:
        files = sorted((path.stat().st_mtime, path) for path in self.folder.iterdir())
        for number, (changed, path) in enumerate(files):
            if changed < time.time() - self.seconds or number <= len(files) - self.most:
                path.unlink(missing_ok=True)
