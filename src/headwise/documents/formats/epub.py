"""E-books (.epub, https://www.w3.org/TR/epub-33/): chapters, navigation, and titles of the package.

Chapters and the navigation document are read as HTML. With a target language the package declares it. Not translated:
the text of pictures (SVG), which is counted, and media overlays. Encrypted books are rejected.
"""

import re
from collections.abc import Sequence
from posixpath import dirname, join, normpath
from urllib.parse import unquote

from headwise.documents.formats.archive import ArchiveDocument, PartPassage, PartTexts, read_archive, skipped_texts
from headwise.documents.formats.html_page import read_html
from headwise.documents.markup.markup import Element, Source, to_xml
from headwise.documents.unit import Document, Skipped
from headwise.errors import UserError

CONTAINER, ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
CHAPTER, NCX, PICTURE = "application/xhtml+xml", "application/x-dtbncx+xml", "image/svg+xml"
PICTURE_TEXTS = ("text", "tspan", "textPath", "title", "desc")  # elements of SVG
PACKAGE_TEXTS = ("title", "description", "subject")  # elements of Dublin Core
NAME = re.compile(r"META-INF/(?:container|encryption)\.xml|.*\.(?:opf|ncx|svg|x?html?|xml)", re.IGNORECASE)


def read_epub(path: str, data: bytes, languages: Sequence[str]) -> ArchiveDocument:
    """Read an e-book; a target language is declared in the filled book."""
    files = read_archive(path, data, "e-book", lambda name: NAME.fullmatch(name) is not None)
    if CONTAINER not in files:
        raise UserError(f"{path}: the archive has no {CONTAINER}; it is not an e-book, or it is damaged")
    container = Source(f"{path}: {CONTAINER}", files[CONTAINER])
    package = next((one.attributes.get("full-path", "") for one in container.root.every("rootfile")), "")
    if package not in files:
        raise UserError(f"{path}: its package document '{package}' is missing; create the e-book again")
    source = Source(f"{path}: {package}", files[package])
    parts: dict[str, Document] = {package: _package(source, languages[1])}
    pictures: list[Skipped] = []
    encrypted = Source(f"{path}: {ENCRYPTION}", files[ENCRYPTION]).root if ENCRYPTION in files else None
    locked = {one.attributes.get("URI", "") for one in encrypted.every("CipherReference")} if encrypted else set[str]()
    for item in source.root.every("item"):
        name = normpath(join(dirname(package), unquote(item.attributes.get("href", ""))))
        kind = item.attributes.get("media-type", "")
        if kind in (CHAPTER, NCX) and name in locked:
            raise UserError(f"{path}: {name} is encrypted; books with copy protection cannot be translated")
        if name in files and name not in parts:
            if kind == CHAPTER:
                parts[name] = read_html(f"{path}: {name}", files[name], languages)
            elif kind == NCX:
                parts[name] = _xml_texts(Source(f"{path}: {name}", files[name]), "text")
            elif kind == PICTURE:
                picture = Source(f"{path}: {name}", files[name])
                pictures += skipped_texts(picture, picture.root, "text of a picture", PICTURE_TEXTS)
    return ArchiveDocument(data, parts, pictures)


def _package(source: Source, language: str) -> PartTexts:
    """The titles of a package; any translation also sets its language."""
    metadata = source.root.child("metadata")
    found = [
        passage for one in (metadata.every(*PACKAGE_TEXTS) if metadata else ()) for passage in _passage(source, one)
    ]
    declared = metadata.child("language") if metadata else None
    edits = [(declared.inner, declared.inner_end, language)] if declared and language else []
    return PartTexts(source, found, (), [edit for edit in edits if edit[1] > edit[0]])


def _xml_texts(source: Source, name: str) -> PartTexts:
    return PartTexts(source, [passage for one in source.root.every(name) for passage in _passage(source, one)], ())


def _passage(source: Source, element: Element) -> list[PartPassage]:
    """The text of an element without children, if it has letters."""
    parts = source.parts(element, lambda _: False)
    if element.children or not any(any(map(str.isalpha, part)) for part in parts if isinstance(part, str)):
        return []
    return [PartPassage(element.inner, element.inner_end, parts, to_xml)]
