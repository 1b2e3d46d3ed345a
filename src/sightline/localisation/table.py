"""The formats by the endings of their files. A further one is a module with `read(path, data, languages)` and a row."""

from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

from sightline.data.corpus import unreadable
from sightline.errors import UserError
from sightline.localisation.unit import Document

FORMATS = {
    ".po": "sightline.localisation.po:read",
    ".pot": "sightline.localisation.po:read",
    ".tmx": "sightline.localisation.tmx:read",
    ".xliff": "sightline.localisation.xliff:read",
    ".xlf": "sightline.localisation.xliff:read",
}
LARGEST = 1 << 30  # bytes of a file


def takes(path: str | Path) -> bool:
    """Whether a file is read unit by unit, not line by line, by its ending."""
    return Path(path).suffix.lower() in FORMATS


def read_document(path: str | Path, languages: Sequence[str] = ("", "")) -> Document:
    """A file of any format of the table.

    Args:
        path: its ending says what it is.
        languages: codes of source and target, for formats that hold several; "" = as the file says.

    Raises:
        UserError: it cannot be read, or is no such file; the line that is wrong is named.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path}: its ending is none of {', '.join(FORMATS)}")
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path}: has more than {LARGEST >> 20:,} MiB; split it")
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(str(path), error) from error
    return resolve_name(FORMATS[path.suffix.lower()])(str(path), data, languages)
