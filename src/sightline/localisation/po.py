"""GNU gettext's catalogues (.po, .pot); a translation replaces the lines of its `msgstr` alone.

https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html. A plural entry is a unit a form: the first has the
singular for its source, the others the plural. What a machine translated is marked `fuzzy`, as gettext's own tools mark
what they guess, so that no program ships it before somebody has looked. Obsolete entries (`#~`) are left alone.

`polib` writes entries. It does not read them, because it takes an entry without a closing quote or without a `msgstr`
for a valid one, and needs time in proportion to the square of an entry's lines.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sightline.errors import UserError
from sightline.localisation.encodings import decoded
from sightline.localisation.unit import Parts, Unit, UnitState, plain

CHARSET = re.compile(rb'"Content-Type:[^"]*?charset=([\w.:-]+)', re.IGNORECASE)
FORMS = re.compile(r"nplurals\s*=\s*(\d)")
WIDTH = 78  # of the lines that are written; gettext's own
ROLE = re.compile(r":[\w:.+-]{1,64}:`|``|`_\b")
STRING = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)?[ \t]*"((?:[^"\\]|\\.)*+)"$')
ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
BEFORE = {  # what an entry must have when a keyword comes
    "msgid": ((), ("msgctxt",)),
    "msgctxt": ((),),
    "msgid_plural": (("msgid",), ("msgctxt", "msgid")),
    "msgstr": (("msgid",), ("msgctxt", "msgid")),
}


@dataclass
class CatalogueEntry:
    """An entry; lines are counted from 0."""

    start: int  # of its first comment
    strings: dict[str, list[str]] = field(default_factory=dict)  # those of each keyword, not yet put together
    fuzzy: bool = False
    msgstr: int = -1  # the line of its first
    end: int = -1  # behind its last string

    def text(self, keyword: str) -> str:
        """The text of a keyword."""
        return "".join(self.strings.get(keyword, ()))

    @property
    def is_plural(self) -> bool:
        """Whether it has a text for several."""
        return "msgid_plural" in self.strings

    @property
    def forms(self) -> dict[int, str]:
        """The translations of a plural entry."""
        return {int(name[7]): self.text(name) for name in self.strings if name.startswith("msgstr[")}


@dataclass(frozen=True)
class Msgstr:
    """Where a unit's translation stands."""

    entry: int
    form: int  # of the plural; -1 for an entry without


class Catalogue:
    """A document of gettext's."""

    def __init__(self, lines: Sequence[str], encoding: str, entries: Sequence[CatalogueEntry], forms: int) -> None:
        """`lines` with their ends; `forms` of the plural, as the header says."""
        self._encoding, self._entries, self._lines = encoding, entries, lines
        found = [pair for number, entry in enumerate(entries) for pair in _units(number, entry, forms)]
        self._places = [place for place, _ in found]
        self.units = [unit for _, unit in found]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed: dict[int, dict[int, str]] = {}
        for number, parts in targets.items():
            place = self._places[number]
            changed.setdefault(place.entry, {})[place.form] = plain(parts)
        lines, at = list[str](), 0
        for number, texts in sorted(changed.items()):
            entry = self._entries[number]
            lines += [*self._lines[at : entry.start], *self._written(entry, texts)]
            at = entry.end
        return "".join([*lines, *self._lines[at:]]).encode(self._encoding)

    def _written(self, entry: CatalogueEntry, texts: Mapping[int, str]) -> list[str]:
        """The lines of an entry with these translations by form, which a person has yet to look at."""
        import polib

        head = list(self._lines[entry.start : entry.msgstr])
        end = "\r\n" if self._lines[entry.start].endswith("\r\n") else "\n"
        msgid = entry.text("msgid")
        if -1 in texts:
            fresh = polib.POEntry(msgid="x", msgstr=as_source(msgid, texts[-1]))
        else:
            forms = {i: as_source(msgid, text) for i, text in {**entry.forms, **texts}.items()}
            fresh = polib.POEntry(msgid="x", msgid_plural="x", msgstr_plural=forms)
        written = fresh.__unicode__(wrapwidth=WIDTH).split("\n")
        first = next(i for i, line in enumerate(written) if line.startswith("msgstr"))
        return _fuzzy(head, end) + [line + end for line in written[first:] if line]


def _fuzzy(head: list[str], end: str) -> list[str]:
    """The lines before a translation with its mark."""
    if any(line.startswith("#,") and "fuzzy" in line for line in head):
        return head
    for i, line in enumerate(head):
        if line.startswith("#,"):
            return [*head[:i], line.replace("#,", "#, fuzzy,", 1), *head[i + 1 :]]
    at = next(i for i, line in enumerate(head) if line.lstrip().startswith(("msg", "#|")))
    return [*head[:at], f"#, fuzzy{end}", *head[at:]]


def as_source(source: str, text: str) -> str:
    """A translation that begins and ends with a line feed where its source does: `msgfmt --check` wants that.

    >>> as_source("Usage:\\n", "Aufruf:")
    'Aufruf:\\n'
    """
    text = text.strip("\n")
    return "\n" * source.startswith("\n") + text + "\n" * (source.endswith("\n") and source != "\n")


def read_po(path: str, data: bytes, languages: Sequence[str]) -> Catalogue:
    """A catalogue; `languages` say nothing to it, for it holds two.

    Raises:
        UserError: it is no such file; with the line.
    """
    try:
        import polib  # noqa: F401  (which writes what is translated)
    except ImportError:
        raise UserError(f"{path}: .po files are written by polib: pip install 'sightline[files]'") from None
    named = CHARSET.search(data)
    encoding = named[1].decode() if named and named[1] != b"CHARSET" else "utf-8"
    try:
        text = decoded(data, encoding)
    except (LookupError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not in the encoding that its header names, {encoding} ({error})") from error
    lines = [found[0] for found in re.finditer(r"[^\n]*+\n|[^\n]++", text)]
    entries = list(_EntryReader(path).entries(lines))
    header = next((entry.text("msgstr") for entry in entries if not entry.text("msgid")), "")
    forms = FORMS.search(header)
    texts = [entry for entry in entries if entry.text("msgid")]
    return Catalogue(lines, encoding, texts, int(forms[1]) if forms else 2)


class _EntryReader:
    """Makes entries of lines, and refuses what gettext's `msgfmt` refuses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._entry: CatalogueEntry | None = None

    def entries(self, lines: Sequence[str]) -> Iterator[CatalogueEntry]:
        """Those that are not obsolete, in order; `UserError` for the first line that belongs to none."""
        for number, line in enumerate(lines):
            text = (line.removeprefix("\ufeff") if number == 0 else line).strip()
            if text.startswith("#"):
                yield from self._finished(number)
                self._comment(text, number)
            elif text:
                found = STRING.match(text)
                if not found:
                    raise self._error(number, f"{_shown(text)}; write a keyword such as msgstr and a text in quotes")
                if found[1] in ("msgid", "msgctxt") and self._has_translation:
                    yield from self._finished(number)
                self._string(found[1] or "", found[2], number)
        yield from self._finished(len(lines))

    @property
    def _has_translation(self) -> bool:
        return self._entry is not None and self._entry.msgstr >= 0

    def _finished(self, number: int) -> Iterator[CatalogueEntry]:
        """The entry that ends before a line, unless only comments of it have been read."""
        entry = self._entry
        if entry is not None and entry.strings:
            if not self._has_translation:
                raise self._error(number - 1, 'the entry before it ends has no msgstr; add msgstr ""')
            self._entry = None
            yield entry

    def _comment(self, text: str, number: int) -> None:
        if text.startswith("#~"):
            self._entry = None  # comments before it are an obsolete entry's
            return
        self._entry = self._entry or CatalogueEntry(number)
        self._entry.fuzzy |= text.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", text)

    def _string(self, keyword: str, raw: str, number: int) -> None:
        entry = self._entry = self._entry or CatalogueEntry(number)
        if keyword:
            self._check(entry, keyword, number)
            entry.strings[keyword] = []
            entry.msgstr = number if keyword.startswith("msgstr") and entry.msgstr < 0 else entry.msgstr
        elif not entry.strings:
            raise self._error(number, "a text in quotes before any msgid; give it one, or take it out")
        unknown = next((one[0] for one in ESCAPE.finditer(raw) if len(one[1]) == 1 and one[1] not in ESCAPES), "")
        if unknown and not unknown[1].isdigit():
            raise self._error(number, f"the escape {unknown} means nothing; write two backslashes for one")
        entry.strings[next(reversed(entry.strings))].append(ESCAPE.sub(_meant, raw))
        entry.end = number + 1

    def _check(self, entry: CatalogueEntry, keyword: str, number: int) -> None:
        """`UserError` for a keyword that does not follow those before it."""
        there = tuple(entry.strings)
        if keyword.startswith("msgstr["):
            fits = entry.is_plural and keyword == f"msgstr[{len(entry.forms)}]"
        else:
            fits = there in BEFORE[keyword]
        if not fits:
            behind = f"behind {there[-1]}" if there else "without a msgid"
            raise self._error(number, f"{keyword} {behind}; mend the order: msgctxt, msgid, msgid_plural, msgstr")

    def _error(self, number: int, what: str) -> UserError:
        return UserError(f"{self._path}: line {number + 1}: is no entry of a .po file: {what}")


def _shown(text: str) -> str:
    return text if len(text) < 40 else f"{text[:40]}..."


def _meant(escape: re.Match[str]) -> str:
    said = escape[1]
    return ESCAPES.get(said) or chr(int(said[1:], 16) if said.startswith("x") else int(said, 8))


def _units(number: int, entry: CatalogueEntry, forms: int) -> Iterator[tuple[Msgstr, Unit]]:
    msgid = entry.text("msgid")
    markup = "rst" if ROLE.search(msgid) else ""
    if not entry.is_plural:
        yield Msgstr(number, -1), _unit(entry, msgid, entry.text("msgstr"), markup)
        return
    for form in range(forms):
        source = entry.text("msgid_plural") if form or forms == 1 else msgid
        yield Msgstr(number, form), _unit(entry, source, entry.forms.get(form, ""), markup)


def _unit(entry: CatalogueEntry, source: str, target: str, markup: str) -> Unit:
    state = UnitState.FUZZY if target and entry.fuzzy else UnitState.TRANSLATED if target else UnitState.UNTRANSLATED
    return Unit((source,) if source else (), (target,) if target else (), state, entry.start + 1, markup)
