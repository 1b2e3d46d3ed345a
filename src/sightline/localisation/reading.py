"""A file of any format: which one, its ending says (`FORMATS` of this package)."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path, PurePath

from sightline.data.corpus import unreadable
from sightline.errors import UserError
from sightline.localisation import FORMATS
from sightline.localisation.unit import Document

LARGEST = 1 << 30  # bytes of a file
ENDINGS = {ending: name for name, endings in FORMATS.items() for ending in endings}


def read_document(path: str | Path, languages: Sequence[str] = ("", ""), ending: str = "") -> Document:
    """A file.

    Args:
        path: its ending says what it is.
        languages: codes of source and target, for formats that hold several; "" = as the file says.
        ending: for a file that is something else than its own says.

    Raises:
        UserError: it cannot be read, or is no such file; the line that is wrong is named.
    """
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{path}: has more than {LARGEST >> 20:,} MiB; split it")
        return parse_document(str(path), path.read_bytes(), languages, ending)
    except OSError as error:
        raise unreadable(str(path), error) from error


def parse_document(name: str, data: bytes, languages: Sequence[str] = ("", ""), ending: str = "") -> Document:
    """What a file of this name holds; see `read_document`."""
    ending = ending or PurePath(name).suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"{name}: its ending is none of {', '.join(ENDINGS)}")
    return import_module(f"sightline.localisation.{ENDINGS[ending]}").read(name, data, languages)
