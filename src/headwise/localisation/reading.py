"""Reading a document of any format; the file name ending decides which (`FORMATS` of this package)."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from headwise.data.corpus import unreadable
from headwise.errors import UserError
from headwise.importing import Table
from headwise.localisation import FORMATS
from headwise.localisation.unit import Document

MAX_FILE_BYTES = 1 << 30  # bytes of a file
# They take the name of a file, its content, and the codes of its languages. They raise `UserError` for an invalid file,
# with the line.
READERS: Table[Callable[[str, bytes, Sequence[str]], Document]] = Table(
    {
        "po": "headwise.localisation.po:read_po",
        "tmx": "headwise.localisation.tmx:read_tmx",
        "xliff": "headwise.localisation.xliff:read_xliff",
        "json_messages": "headwise.localisation.json_messages:read_json_messages",
        "properties": "headwise.localisation.properties:read_properties",
        "android": "headwise.localisation.android:read_android",
        "resx": "headwise.localisation.resx:read_resx",
        "qt": "headwise.localisation.qt:read_qt",
        "rails": "headwise.localisation.rails:read_rails",
        "fluent_file": "headwise.localisation.fluent_file:read_fluent",
        "csv_table": "headwise.localisation.csv_table:read_csv",
        "apple_strings": "headwise.localisation.apple_strings:read_apple_strings",
        "stringsdict": "headwise.localisation.apple_strings:read_stringsdict",
        "xcstrings": "headwise.localisation.xcstrings:read_xcstrings",
        "subtitles": "headwise.localisation.subtitles:read_subtitles",
        "html_page": "headwise.localisation.html_page:read_html",
        "markdown": "headwise.localisation.markdown:read_markdown",
        "rst": "headwise.localisation.rst:read_rst",
        "word": "headwise.localisation.word:read_word",
        "presentation": "headwise.localisation.office_xml:read_presentation",
        "workbook": "headwise.localisation.office_xml:read_workbook",
        "open_document": "headwise.localisation.open_document:read_open_document",
        "epub": "headwise.localisation.epub:read_epub",
        "plain_text": "headwise.localisation.plain_text:read_plain_text",
    }
)
ENDINGS = {ending: name for name, endings in FORMATS.items() for ending in endings}


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
    return READERS[ENDINGS[ending]](name, data, languages)
