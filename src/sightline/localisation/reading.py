"""A file of any format: which one, its ending says (`FORMATS` of this package)."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from sightline.data.corpus import unreadable
from sightline.errors import UserError
from sightline.localisation import FORMATS
from sightline.localisation.html_page import read_html
from sightline.localisation.json_messages import read_json_messages
from sightline.localisation.markdown import read_markdown
from sightline.localisation.plain_text import read_plain_text
from sightline.localisation.po import read_po
from sightline.localisation.properties import read_properties
from sightline.localisation.subtitles import read_subtitles
from sightline.localisation.tmx import read_tmx
from sightline.localisation.unit import Document
from sightline.localisation.word import read_word
from sightline.localisation.xliff import read_xliff

LARGEST = 1 << 30  # bytes of a file
READERS: dict[str, Callable[[str, bytes, Sequence[str]], Document]] = {
    "po": read_po,
    "tmx": read_tmx,
    "xliff": read_xliff,
    "json_messages": read_json_messages,
    "properties": read_properties,
    "subtitles": read_subtitles,
    "html_page": read_html,
    "markdown": read_markdown,
    "word": read_word,
    "plain_text": read_plain_text,
}
ENDINGS = {ending: READERS[name] for name, endings in FORMATS.items() for ending in endings}


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
    return ENDINGS[ending](name, data, languages)
