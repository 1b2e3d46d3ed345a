"""Documents that are ZIP archives of files: each file with text is a document of its own, all others stay.

See `word.py`, `office_xml.py`, `open_document.py` and `epub.py` for the formats of the files.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from re import finditer
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

from headwise.documents.markup.markup import Element, Source
from headwise.documents.not_translated import beginning_of
from headwise.documents.unit import Declared, Document, Parts, Skipped, Unit, UnitState, is_unchanged
from headwise.errors import UserError

MAX_FILES, MAX_UNPACKED_BYTES = 10_000, 1 << 29  # files of an archive, and bytes when unpacked


@dataclass(frozen=True)
class PartPassage:
    """A text: bytes of an XML file, and how its translation is written."""

    start: int
    end: int
    source: Parts
    to_xml: Callable[[Parts], str]
    kept: str = ""  # as `Unit.kept`
    is_marked: bool = False  # whether a translation gets marks, such as its direction, that its source does not have


class PartTexts:
    """An XML file with texts to replace. A text may contain others, such as a note in a paragraph."""

    source_languages: Sequence[Declared] = ()
    target_languages: Sequence[Declared] = ()

    def __init__(
        self,
        part: Source,
        passages: Sequence[PartPassage],
        skipped: Sequence[Skipped],
        edits: Sequence[tuple[int, int, str]] = (),
    ) -> None:
        """`edits` are made with any translation, such as that of a declared language."""
        self._edits = tuple(edits)
        self._part, self._passages, self.skipped = part, passages, skipped
        ends = [end.start() for end in finditer(b"\n", part.data)]
        self.units = [
            Unit(
                one.source,
                (),
                UnitState.KEPT if one.kept else UnitState.UNTRANSLATED,
                bisect_left(ends, one.start) + 1,
                kept=one.kept,
            )
            for one in passages
        ]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        filled = [(self._passages[number], parts) for number, parts in targets.items()]
        edits = [
            (one.start, one.end, one.to_xml(parts))
            for one, parts in filled
            if one.is_marked or one.start == one.end or not is_unchanged(one.source, parts)
        ]
        outer: list[tuple[int, int, str]] = []
        for start, end, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
            if outer and end <= outer[-1][1]:
                original = self._part.text(start, end)
                outer[-1] = (*outer[-1][:2], outer[-1][2].replace(original, text, 1))
            else:
                outer.append((start, end, text))
        return self._part.edited([*outer, *self._edits])


class ArchiveDocument:
    """An archive; its units are those of its files, in their order."""

    source_languages: Sequence[Declared] = ()
    target_languages: Sequence[Declared] = ()

    def __init__(self, data: bytes, parts: Mapping[str, Document], skipped: Sequence[Skipped] = ()) -> None:
        self._data, self._parts = data, parts
        self.units = [unit for part in parts.values() for unit in part.units]
        self.skipped = [*skipped, *(one for part in parts.values() for one in part.skipped)]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed, first = dict[str, bytes](), 0
        for name, part in self._parts.items():
            own = {n: targets[first + n] for n in range(len(part.units)) if first + n in targets}
            if targets:
                changed[name] = part.filled(own)
            first += len(part.units)
        return _repack(self._data, changed) if changed else self._data


def skipped_texts(part: Source, element: Element, kind: str, names: Sequence[str]) -> Iterator[Skipped]:
    """The texts of elements with these names as texts that stay; those without letters are not counted."""
    for one in element.every(*names):
        text = part.text(one.inner, one.inner_end)
        if not one.children and any(map(str.isalpha, text)):
            yield Skipped(kind, one.line, beginning_of(text))


def read_archive(path: str, data: bytes, kind: str, is_wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files of an archive.

    Raises:
        UserError: not an archive, too large when unpacked, or with unsafe paths; `kind` names the format.
    """
    try:
        with ZipFile(BytesIO(data)) as archive:
            _check(path, archive)
            return {name: archive.read(name) for name in archive.namelist() if is_wanted(name)}
    except (BadZipFile, ZlibError, EOFError, OSError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{path}: not a valid {kind} ({error}); open it in its program and save it again") from error


def _check(path: str, archive: ZipFile) -> None:
    """`UserError` for archives that are too large when unpacked, or with unsafe paths."""
    files = archive.infolist()
    if len(files) > MAX_FILES or sum(one.file_size for one in files) > MAX_UNPACKED_BYTES:
        raise UserError(
            f"{path}: unpacks to more than {MAX_FILES:,} files or {MAX_UNPACKED_BYTES >> 20} MiB; split the document"
        )
    for one in files:
        if one.filename.startswith("/") or "\\" in one.filename or ".." in PurePosixPath(one.filename).parts:
            raise UserError(f"{path}: unsafe path '{one.filename}' in the archive; open it and save it again")
    names = archive.namelist()
    if len(set(names)) < len(names):
        raise UserError(f"{path}: two files of the same name in the archive; open it and save it again")


def _repack(data: bytes, changed: Mapping[str, bytes]) -> bytes:
    """The archive with new contents for some of its files."""
    written = BytesIO()
    with ZipFile(BytesIO(data)) as old, ZipFile(written, "w") as new:
        if all(old.read(name) == content for name, content in changed.items()):
            return data
        new.comment = old.comment
        for one in old.infolist():
            try:
                content = changed[one.filename] if one.filename in changed else old.read(one)
            except (BadZipFile, ZlibError, EOFError) as error:
                raise UserError(f"{one.filename} in the archive is damaged ({error}); save the file again") from error
            new.writestr(copy(one), content)
    return written.getvalue()
