"""GNU gettext's catalogues (.po, .pot), read by `polib`; a translation replaces the lines of its `msgstr` alone.

https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html. A plural entry is a unit a form: the first has the
singular for its source, the others the plural. What a machine translated is marked `fuzzy`, as gettext's own tools mark
what they guess, so that no program ships it before somebody has looked. Obsolete entries (`#~`) are left alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.errors import UserError
from sightline.localisation.unit import Parts, Unit, UnitState, plain

CHARSET = re.compile(rb'"Content-Type:[^"]*charset=([\w.:-]+)', re.IGNORECASE)
FORMS = re.compile(r"nplurals\s*=\s*(\d)")
WIDTH = 78  # of the lines that are written; gettext's own
ROLE = re.compile(r":[\w:.+-]+:`|``|`_\b")


@dataclass(frozen=True)
class Msgstr:
    """Where a unit's translation stands."""

    entry: int
    form: int  # of the plural; -1 for an entry without


class Catalogue:
    """A document of gettext's."""

    def __init__(self, text: str, encoding: str, entries: Sequence[Any], forms: int) -> None:
        """`entries` are polib's, in order; `forms` of the plural, as the header says."""
        self._encoding, self._entries = encoding, entries
        self._lines = text.splitlines(keepends=True)
        found = [pair for number, entry in enumerate(entries) for pair in _units(number, entry, forms)]
        self._places = [place for place, _ in found]
        self.units = [unit for _, unit in found]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed: dict[int, dict[int, str]] = {}
        for number, parts in targets.items():
            place = self._places[number]
            changed.setdefault(place.entry, {})[place.form] = plain(parts)
        lines = list(self._lines)
        for number, texts in sorted(changed.items(), reverse=True):  # from the end: lines before keep their numbers
            start = self._entries[number].linenum - 1
            lines[start : self._end(start)] = self._written(number, texts, self._lines[start : self._end(start)])
        return "".join(lines).encode(self._encoding)

    def _end(self, start: int) -> int:
        """The line behind the last of an entry that begins at `start`."""
        at = next(i for i in range(start, len(self._lines)) if self._lines[i].startswith("msgstr"))
        while at < len(self._lines) and self._lines[at].startswith(("msgstr", '"')):
            at += 1
        return at

    def _written(self, number: int, texts: Mapping[int, str], block: Sequence[str]) -> list[str]:
        """The lines of an entry with these translations by form, which a person has yet to look at."""
        import polib

        entry, end = self._entries[number], "\r\n" if block[0].endswith("\r\n") else "\n"
        head = list(block[: next(i for i, line in enumerate(block) if line.startswith("msgstr"))])
        if -1 in texts:
            fresh = polib.POEntry(msgid="x", msgstr=as_source(entry.msgid, texts[-1]))
        else:
            forms = {form: texts.get(form, text) for form, text in entry.msgstr_plural.items()} | dict(texts)
            fresh = polib.POEntry(
                msgid="x", msgid_plural="x", msgstr_plural={i: as_source(entry.msgid, t) for i, t in forms.items()}
            )
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
    at = next(i for i, line in enumerate(head) if line.startswith(("msg", "#|")))
    return [*head[:at], f"#, fuzzy{end}", *head[at:]]


def as_source(source: str, text: str) -> str:
    """A translation that begins and ends with a line feed where its source does: `msgfmt --check` wants that.

    >>> as_source("Usage:\\n", "Aufruf:")
    'Aufruf:\\n'
    """
    text = text.strip("\n")
    return "\n" * source.startswith("\n") + text + "\n" * (source.endswith("\n") and source != "\n")


def read(path: str, data: bytes, languages: Sequence[str]) -> Catalogue:
    """A catalogue; `languages` say nothing to it, for it holds two.

    Raises:
        UserError: it is no such file; with the line.
    """
    try:
        import polib
    except ImportError:
        raise UserError(f"{path}: .po files are read by polib: pip install 'sightline[files]'") from None
    named = CHARSET.search(data)
    encoding = named[1].decode() if named and named[1] != b"CHARSET" else "utf-8"
    try:
        text = data.decode(encoding)
        parsed = polib.pofile(text) if text.strip() else polib.POFile()
    except (LookupError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not in the encoding that its header names, {encoding} ({error})") from error
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{path}: {_cause(str(error))}; look at it with: msgfmt --check {path}") from error
    forms = FORMS.search(parsed.metadata.get("Plural-Forms", ""))
    for first in parsed[:1]:
        first.linenum = first.linenum or text[: -len(text.lstrip())].count("\n") + 1  # polib says 0 without a header
    entries = sorted((entry for entry in parsed if not entry.obsolete), key=lambda entry: entry.linenum or 0)
    return Catalogue(text, encoding, entries, int(forms[1]) if forms else 2)


def _cause(message: str) -> str:
    found = re.search(r"\(line (\d+)\)(?:: (.*))?", message)
    return f"line {found[1]}: is no entry of a .po file ({found[2] or message})" if found else message


def _units(number: int, entry: Any, forms: int) -> Iterator[tuple[Msgstr, Unit]]:
    markup = "rst" if ROLE.search(entry.msgid) else ""
    if not entry.msgid_plural:
        yield Msgstr(number, -1), _unit(entry, entry.msgid, entry.msgstr, markup)
        return
    for form in range(forms):
        source = entry.msgid_plural if form or forms == 1 else entry.msgid
        yield Msgstr(number, form), _unit(entry, source, entry.msgstr_plural.get(form, ""), markup)


def _unit(entry: Any, source: str, target: str, markup: str) -> Unit:
    state = UnitState.FUZZY if target and entry.fuzzy else UnitState.TRANSLATED if target else UnitState.UNTRANSLATED
    return Unit((source,) if source else (), (target,) if target else (), state, entry.linenum, markup)
