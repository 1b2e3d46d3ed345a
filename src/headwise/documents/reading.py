"""Reading a document of any format; the file name ending decides which (`FORMATS` of this package)."""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from headwise.documents import FORMATS
from headwise.documents.unit import Document
from headwise.errors import UserError
from headwise.importing import Table
from headwise.text.files.sources import unreadable
from headwise.text.language_codes import contradicts, document_language

MAX_FILE_BYTES = 1 << 30  # bytes of a file
# They take the name of a file, its content, and the codes of its languages. They raise `UserError` for an invalid file,
# with the line.
READERS: Table[Callable[[str, bytes, Sequence[str]], Document]] = Table(
    {
        "po": "headwise.documents.formats.po:read_po",
        "tmx": "headwise.documents.formats.tmx:read_tmx",
        "xliff": "headwise.documents.formats.xliff:read_xliff",
        "json_messages": "headwise.documents.formats.json_messages:read_json_messages",
        "properties": "headwise.documents.formats.properties:read_properties",
        "android": "headwise.documents.formats.android:read_android",
        "resx": "headwise.documents.formats.resx:read_resx",
        "qt": "headwise.documents.formats.qt:read_qt",
        "rails": "headwise.documents.formats.rails:read_rails",
        "fluent_file": "headwise.documents.formats.fluent_file:read_fluent",
        "csv_table": "headwise.documents.formats.csv_table:read_csv",
        "apple_strings": "headwise.documents.formats.apple_strings:read_apple_strings",
        "stringsdict": "headwise.documents.formats.apple_strings:read_stringsdict",
        "xcstrings": "headwise.documents.formats.xcstrings:read_xcstrings",
        "subtitles": "headwise.documents.formats.subtitles:read_subtitles",
        "html_page": "headwise.documents.formats.html_page:read_html",
        "markdown": "headwise.documents.formats.markdown:read_markdown",
        "rst": "headwise.documents.formats.rst:read_rst",
        "word": "headwise.documents.formats.word:read_word",
        "presentation": "headwise.documents.formats.office_xml:read_presentation",
        "workbook": "headwise.documents.formats.office_xml:read_workbook",
        "open_document": "headwise.documents.formats.open_document:read_open_document",
        "epub": "headwise.documents.formats.epub:read_epub",
        "plain_text": "headwise.documents.formats.plain_text:read_plain_text",
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
        UserError: unreadable, invalid, or in other languages; the message names the line.
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
    document = READERS[ENDINGS[ending]](name, data, languages)
    check_languages(name, document, languages)
    return document


def check_languages(name: str, document: Document, languages: Sequence[str]) -> None:
    """`UserError` if a file declares other languages than these, or several where one is ""."""
    sides = (("texts", document.source_languages), ("translations", document.target_languages))
    for (what, declared), wanted in zip(sides, languages, strict=True):
        own = "" if wanted or not declared else document_language(declared[0].code)
        for code, line in declared:
            if contradicts(code, wanted or own):
                others = f"and others in '{own}'; split it" if own else f"not in '{wanted}'"
                fix = "" if own else "; choose files and languages that agree, or change what the file declares"
                raise UserError(f"{name}: line {line}: its {what} are in '{code}', as it declares, {others}{fix}")
