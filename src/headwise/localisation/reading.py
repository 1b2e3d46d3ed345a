"""Reading a document of any format; the file name ending decides which (`FORMATS` of this package)."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from headwise.data.corpus import unreadable
from headwise.errors import UserError
from headwise.localisation import FORMATS
from headwise.localisation.android import read_android
from headwise.localisation.apple_strings import read_apple_strings, read_stringsdict
from headwise.localisation.csv_table import read_csv
from headwise.localisation.epub import read_epub
from headwise.localisation.fluent_file import read_fluent
from headwise.localisation.html_page import read_html
from headwise.localisation.json_messages import read_json_messages
from headwise.localisation.markdown import read_markdown
from headwise.localisation.office_xml import read_presentation, read_workbook
from headwise.localisation.open_document import read_open_document
from headwise.localisation.plain_text import read_plain_text
from headwise.localisation.po import read_po
from headwise.localisation.properties import read_properties
from headwise.localisation.qt import read_qt
from headwise.localisation.rails import read_rails
from headwise.localisation.resx import read_resx
from headwise.localisation.rst import read_rst
from headwise.localisation.subtitles import read_subtitles
from headwise.localisation.tmx import read_tmx
from headwise.localisation.unit import Document
from headwise.localisation.word import read_word
from headwise.localisation.xcstrings import read_xcstrings
from headwise.localisation.xliff import read_xliff

MAX_FILE_BYTES = 1 << 30  # bytes of a file
# They take the name of a file, its content, and the codes of its languages. They raise `UserError` for an invalid file,
# with the line.
READERS: dict[str, Callable[[str, bytes, Sequence[str]], Document]] = {
    "po": read_po,
    "tmx": read_tmx,
    "xliff": read_xliff,
    "json_messages": read_json_messages,
    "properties": read_properties,
    "android": read_android,
    "resx": read_resx,
    "qt": read_qt,
    "rails": read_rails,
    "fluent_file": read_fluent,
    "csv_table": read_csv,
    "apple_strings": read_apple_strings,
    "stringsdict": read_stringsdict,
    "xcstrings": read_xcstrings,
    "subtitles": read_subtitles,
    "html_page": read_html,
    "markdown": read_markdown,
    "rst": read_rst,
    "word": read_word,
    "presentation": read_presentation,
    "workbook": read_workbook,
    "open_document": read_open_document,
    "epub": read_epub,
    "plain_text": read_plain_text,
}
ENDINGS = {ending: READERS[name] for name, endings in FORMATS.items() for ending in endings}


def read_document(path: str | Path, languages: Sequence[str] = ("", ""), ending: str = "") -> Document:
    """Read a document.

    Args:
        path: the file; its ending decides the format.
        languages: codes of source and target, for formats with several languages; "" = as declared in the file.
        ending: overrides the ending of `path`.

    Raises:
        UserError: unreadable, or invalid; the message names the line.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: has more than {MAX_FILE_BYTES >> 20:,} MiB; split it")
        return parse_document(str(path), path.read_bytes(), languages, ending)
    except OSError as error:
        raise unreadable(str(path), error) from error


def parse_document(name: str, data: bytes, languages: Sequence[str] = ("", ""), ending: str = "") -> Document:
    """Parse the content of a file with this name; see `read_document`."""
    ending = ending or PurePath(name).suffix.lower()
    if ending not in ENDINGS:
        raise UserError(f"{name}: unsupported file type; supported are {', '.join(ENDINGS)}")
    return ENDINGS[ending](name, data, languages)
