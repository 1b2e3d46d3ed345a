"""GNU gettext catalogues (.po, .pot); only the `msgstr` lines of translated entries change.

https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html. A plural entry has a unit for each form: the source
of the first is the singular, of the others the plural. Machine translations are marked `fuzzy`, as by gettext's tools,
so that programs do not use them before review. Obsolete entries (`#~`) stay. A template (.pot) becomes a catalogue of
the target language, if that is given: its header gets the charset, the language and the plural forms. A charset that
cannot represent a translation becomes UTF-8. Texts from Markdown files (`#: a.md`, of po4a, mdBook and MyST) are
Markdown.

`polib` writes entries. It does not read them: it accepts entries without a closing quote or without a `msgstr`, and its
time is quadratic in the lines of an entry.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headwise.documents.formats.encodings import decode_file
from headwise.documents.formats.plurals import plural_rule
from headwise.documents.markup.inline_boundaries import inline_markdown, inline_rst
from headwise.documents.markup.placeholder_grammars import GETTEXT_FLAGS
from headwise.documents.not_translated import NO_LETTERS, beginning_of
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState, has_letters, plain
from headwise.errors import UserError

CHARSET = re.compile(rb'"Content-Type:[^"]*?charset=([\w.:-]+)', re.IGNORECASE)
CHARSET_NAME = re.compile(r'("Content-Type:[^"]*?charset=)[\w.:-]+', re.IGNORECASE)
FORMS = re.compile(r"nplurals\s*=\s*(\d)")
PLACEHOLDERS = {"Language": "", "Plural-Forms": "nplurals=INTEGER; plural=EXPRESSION;"}  # in headers of templates
WIDTH = 78  # of written lines, the default of gettext
OBSOLETE = re.compile(r"#~[ \t]*msgid[ \t]")
FIELD = re.compile(r"^Plural-Forms:[ \t]*(.*)$", re.MULTILINE)
LANGUAGE = re.compile(r"^Language:[ \t]*([A-Za-z]{2,3}(?:[-_@.]\S*)?)[ \t]*$", re.MULTILINE)
SOURCE_LANGUAGE = re.compile(
    LANGUAGE.pattern.replace("Language", "X-Source-Language"), re.MULTILINE
)  # of Poedit, Weblate
MARKDOWN = re.compile(r"#:.*\.(?:md|mdx|markdown)(?::\d|\s|$)")  # a reference to the file of a text
CODE = re.compile(r"#\.\s*type:\s*Fenced code block", re.IGNORECASE)  # written by po4a
ROLE = re.compile(r":[\w:.+-]{1,64}:`|``|`_\b")
STRING = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)?[ \t]*"((?:[^"\\]|\\.)*+)"$')
ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\"}
BEFORE = {  # the keywords that must precede a keyword
    "msgid": ((), ("msgctxt",)),
    "msgctxt": ((),),
    "msgid_plural": (("msgid",), ("msgctxt", "msgid")),
    "msgstr": (("msgid",), ("msgctxt", "msgid")),
}


@dataclass
class CatalogueEntry:
    """An entry; lines are counted from 0."""

    start: int  # of its first comment
    strings: dict[str, list[str]] = field(default_factory=dict)  # of each keyword, before concatenation
    flags: list[str] = field(default_factory=list)  # such as `c-format`
    is_markdown: bool = False  # by the file that it is from
    is_code: bool = False
    msgstr: int = -1  # line of its first msgstr
    end: int = -1  # the line after its last string

    def text(self, keyword: str) -> str:
        """The text of a keyword."""
        return "".join(self.strings.get(keyword, ()))

    @property
    def fuzzy(self) -> bool:
        """Whether its translation needs review."""
        return "fuzzy" in self.flags

    @property
    def is_plural(self) -> bool:
        """Whether it has plural forms."""
        return "msgid_plural" in self.strings

    @property
    def forms(self) -> dict[int, str]:
        """The translations of a plural entry, by form."""
        return {int(name[7]): self.text(name) for name in self.strings if name.startswith("msgstr[")}


@dataclass(frozen=True)
class Msgstr:
    """The position of the translation of a unit."""

    entry: int
    form: int  # plural form; -1 for an entry without


@dataclass(frozen=True)
class CatalogueHeader:
    """The header of a catalogue: the entry with an empty `msgid`."""

    entry: CatalogueEntry | None
    language: str  # the target language, "" if unknown
    is_template: bool

    @property
    def span(self) -> tuple[int, int]:
        """The number of the first line and of the line after it; the place for a new one if there is none."""
        return (self.entry.start, self.entry.end) if self.entry else (0, 0)

    @property
    def plural_rule(self) -> str:
        """The value of `Plural-Forms`, of the target language if the header has none."""
        there = FIELD.search(self.entry.text("msgstr")) if self.entry else None
        rule = there[1] if there else ""
        return rule if FORMS.search(rule) else plural_rule(self.language) or rule

    def for_language(self, lines: Sequence[str]) -> list[str]:
        """The lines of the header, with charset, language and plural forms where it has placeholders."""
        end = "\r\n" if lines[0].endswith("\r\n") else "\n"
        if self.entry is None:
            return [line + end for line in ('msgid ""', 'msgstr ""', *self._fields(""), "")] if self.is_template else []
        head = list(lines[self.entry.start : self.entry.msgstr])
        if self.is_template:
            head = [line for line in map(_without_fuzzy, head) if line]
        body = [line.replace("charset=CHARSET", "charset=UTF-8") for line in lines[self.entry.msgstr : self.entry.end]]
        for field_line in self._fields(self.entry.text("msgstr")):
            name = field_line[: field_line.index(":") + 1]
            there = next((i for i, line in enumerate(body) if line.lstrip().startswith(name)), len(body))
            body[there : there + 1] = [field_line + end]
        return [*head, *body]

    def _fields(self, value: str) -> list[str]:
        """The missing fields of a header with this value, as quoted lines."""
        fields = [] if value else ["Content-Type: text/plain; charset=UTF-8", "Content-Transfer-Encoding: 8bit"]
        wanted = {"Language": self.language.replace("-", "_"), "Plural-Forms": plural_rule(self.language)}
        for name, text in wanted.items():
            there = re.search(rf"^{name}:[ \t]*(.*)$", value, re.MULTILINE)
            is_missing = self.is_template if there is None else there[1].strip() == PLACEHOLDERS[name]
            fields += [f"{name}: {text}"] * bool(text and is_missing)
        return [f'"{one}\\n"' for one in fields]


def _without_fuzzy(line: str) -> str:
    """A line of flags without `fuzzy`; "" if none is left."""
    if not line.lstrip().startswith("#,"):
        return line
    flags = [flag.strip() for flag in line.strip()[2:].split(",") if flag.strip() not in ("", "fuzzy")]
    return f"#, {', '.join(flags)}{line[len(line.rstrip()) :]}" if flags else ""


class Catalogue:
    """A gettext catalogue."""

    def __init__(
        self,
        lines: Sequence[str],
        encoding: str,
        entries: Sequence[CatalogueEntry],
        forms: int,
        obsolete: Sequence[Skipped],
        header: "CatalogueHeader",
    ) -> None:
        """`lines` include their line ends; `forms` is the number of plural forms."""
        self._header, self._forms = header, forms
        self._encoding, self._entries = encoding, entries
        fields = header.entry.text("msgstr") if header.entry else ""
        self.source_languages, self.target_languages = (
            [Declared(found[1], header.span[0] + 1) for found in pattern.finditer(text)]
            for pattern, text in ((SOURCE_LANGUAGE, fields), (LANGUAGE, "" if header.is_template else fields))
        )
        self._mark = "\ufeff" if lines and lines[0].startswith("\ufeff") else ""  # a byte order mark
        self._lines = [line.removeprefix(self._mark) for line in lines[:1]] + list(lines[1:])
        found = [pair for number, entry in enumerate(entries) for pair in _units(number, entry, forms)]
        self._places = [place for place, _ in found]
        self.skipped = obsolete
        self.units = [unit for _, unit in found]

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed: dict[int, dict[int, str]] = {}
        for number, parts in targets.items():
            place = self._places[number]
            changed.setdefault(place.entry, {})[place.form] = _msgstr(self.units[number], parts)
        edits = list[tuple[int, int, list[str]]]()  # first line, the line after the last, and new lines
        if targets:
            edits.append((*self._header.span, self._header.for_language(self._lines)))
            for number, entry in enumerate(self._entries if self._header.is_template else ()):
                if entry.is_plural and len(entry.forms) != self._forms:
                    changed.setdefault(number, {})
        for number, texts in changed.items():
            entry = self._entries[number]
            edits.append((entry.start, entry.end, self._written(entry, texts)))
        lines, at = list[str](), 0
        for start, end, new in sorted(edits):
            lines += [*self._lines[at:start], *new]
            at = end
        text = "".join([self._mark, *lines, *self._lines[at:]])
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError:
            return CHARSET_NAME.sub(r"\g<1>UTF-8", text, count=1).encode()

    def _written(self, entry: CatalogueEntry, texts: Mapping[int, str]) -> list[str]:
        """The lines of an entry with these translations by form, marked fuzzy."""
        import polib

        head = list(self._lines[entry.start : entry.msgstr])
        end = "\r\n" if self._lines[entry.start].endswith("\r\n") else "\n"
        msgid = entry.text("msgid")
        if -1 in texts:
            fresh = polib.POEntry(msgid="x", msgstr=with_outer_newlines(msgid, texts[-1]))
        else:
            there = {i: entry.forms.get(i, "") for i in range(max(self._forms, *(i + 1 for i in entry.forms)))}
            there = {i: there[i] for i in range(self._forms)} if self._header.is_template else there
            forms = {i: with_outer_newlines(msgid, text) if text else "" for i, text in {**there, **texts}.items()}
            fresh = polib.POEntry(msgid="x", msgid_plural="x", msgstr_plural=forms)
        written = fresh.__unicode__(wrapwidth=WIDTH).split("\n")
        first = next(i for i, line in enumerate(written) if line.startswith("msgstr"))
        return (_fuzzy(head, end) if texts else head) + [line + end for line in written[first:] if line]


def _msgstr(unit: Unit, parts: Parts) -> str:
    """A translation, with the blanks that the markup of its source needs."""
    language = unit.markup.partition(" ")[0]
    written = {"rst": inline_rst, "markdown": inline_markdown}.get(language, plain)
    return plain(parts) if plain(parts) == plain(unit.source) else written(parts)


def _fuzzy(head: list[str], end: str) -> list[str]:
    """The lines before the translation, with the fuzzy flag."""
    if any(line.lstrip().startswith("#,") and "fuzzy" in line for line in head):
        return head
    for i, line in enumerate(head):
        if line.lstrip().startswith("#,"):
            return [*head[:i], line.replace("#,", "#, fuzzy,", 1), *head[i + 1 :]]
    at = next(i for i, line in enumerate(head) if line.lstrip().startswith(("msg", "#|")))
    return [*head[:at], f"#, fuzzy{end}", *head[at:]]


def with_outer_newlines(source: str, text: str) -> str:
    """A translation that starts and ends with a newline where its source does, as `msgfmt --check` requires.

    >>> with_outer_newlines("Usage:\\n", "Aufruf:")
    'Aufruf:\\n'
    """
    text = text.strip("\n")
    return "\n" * source.startswith("\n") + text + "\n" * (source.endswith("\n") and source != "\n")


def read_po(path: str, data: bytes, languages: Sequence[str]) -> Catalogue:
    """Read a catalogue; the target language completes the header of a template."""
    try:
        import polib  # noqa: F401  (used for writing)
    except ImportError:
        raise UserError(f'{path}: .po files need polib: pip install "headwise[files]"') from None
    named = CHARSET.search(data)
    encoding = named[1].decode() if named and named[1] != b"CHARSET" else "utf-8"
    try:
        text = decode_file(data, encoding)
    except (LookupError, UnicodeDecodeError) as error:
        why = f"not valid in the encoding of its header, {encoding} ({error})"
        raise UserError(f"{path}: {why}; convert the file") from error
    lines = [found[0] for found in re.finditer(r"[^\n]*+\n|[^\n]++", text)]
    entries = list(_EntryReader(path).entries(lines))
    obsolete = [
        Skipped("obsolete entry", number, beginning_of(line[2:]))
        for number, line in enumerate(lines, 1)
        if OBSOLETE.match(line)
    ]
    first = next((entry for entry in entries if not entry.text("msgid") and "msgctxt" not in entry.strings), None)
    header = CatalogueHeader(first, languages[1], path.lower().endswith(".pot"))
    forms = FORMS.search(header.plural_rule)
    texts = [entry for entry in entries if entry.text("msgid")]
    return Catalogue(lines, encoding, texts, int(forms[1]) if forms else 2, obsolete, header)


class _EntryReader:
    """Parses lines into entries, and rejects what gettext's `msgfmt` rejects."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._entry: CatalogueEntry | None = None

    def entries(self, lines: Sequence[str]) -> Iterator[CatalogueEntry]:
        """The entries that are not obsolete, in order; `UserError` for the first invalid line."""
        for number, line in enumerate(lines):
            text = (line.removeprefix("\ufeff") if number == 0 else line).strip()
            if text.startswith("#"):
                yield from self._finished(number)
                self._comment(text, number)
            elif text:
                found = STRING.match(text)
                if not found:
                    raise self._error(
                        number, f"{_shortened_line(text)}; expected a keyword such as msgstr and a quoted text"
                    )
                if found[1] in ("msgid", "msgctxt") and self._has_translation:
                    yield from self._finished(number)
                self._string(found[1] or "", found[2], number)
        yield from self._finished(len(lines))

    @property
    def _has_translation(self) -> bool:
        return self._entry is not None and self._entry.msgstr >= 0

    def _finished(self, number: int) -> Iterator[CatalogueEntry]:
        """The entry that ends before this line, unless only its comments have been read."""
        entry = self._entry
        if entry is not None and entry.strings:
            if not self._has_translation:
                raise self._error(number - 1, 'the preceding entry has no msgstr; add msgstr ""')
            self._entry = None
            yield entry

    def _comment(self, text: str, number: int) -> None:
        if text.startswith("#~"):
            self._entry = None  # preceding comments belong to an obsolete entry
            return
        self._entry = self._entry or CatalogueEntry(number)
        if text.startswith("#,"):
            self._entry.flags += re.split(r"[,\s]+", text[2:].strip())
        self._entry.is_markdown |= MARKDOWN.match(text) is not None
        self._entry.is_code |= CODE.match(text) is not None

    def _string(self, keyword: str, raw: str, number: int) -> None:
        entry = self._entry = self._entry or CatalogueEntry(number)
        if keyword:
            self._check(entry, keyword, number)
            entry.strings[keyword] = []
            entry.msgstr = number if keyword.startswith("msgstr") and entry.msgstr < 0 else entry.msgstr
        elif not entry.strings:
            raise self._error(number, "a quoted text before any msgid; add a msgid or remove it")
        unknown = next((one[0] for one in ESCAPE.finditer(raw) if len(one[1]) == 1 and one[1] not in ESCAPES), "")
        if unknown and not unknown[1].isdigit():
            raise self._error(number, f"unknown escape {unknown}; write a backslash as two")
        entry.strings[next(reversed(entry.strings))].append(ESCAPE.sub(_unescaped_character, raw))
        entry.end = number + 1

    def _check(self, entry: CatalogueEntry, keyword: str, number: int) -> None:
        """`UserError` for a keyword in the wrong position."""
        there = tuple(entry.strings)
        if keyword.startswith("msgstr["):
            fits = entry.is_plural and keyword == f"msgstr[{len(entry.forms)}]"
        else:
            fits = there in BEFORE[keyword]
        if not fits:
            where = f"after {there[-1]}" if there else "without a msgid"
            raise self._error(number, f"{keyword} {where}; the order is msgctxt, msgid, msgid_plural, msgstr")

    def _error(self, number: int, what: str) -> UserError:
        return UserError(f"{self._path}: line {number + 1}: invalid .po entry: {what}")


def _shortened_line(text: str) -> str:
    return text if len(text) < 40 else f"{text[:40]}..."


def _unescaped_character(escape: re.Match[str]) -> str:
    code = escape[1]
    return ESCAPES.get(code) or chr(int(code[1:], 16) if code.startswith("x") else int(code, 8))


def _units(number: int, entry: CatalogueEntry, forms: int) -> Iterator[tuple[Msgstr, Unit]]:
    msgid = entry.text("msgid")
    language = "markdown" if entry.is_markdown else "rst" if ROLE.search(msgid) else ""
    markup = " ".join(filter(None, (language, _grammar(entry.flags))))
    if not entry.is_plural:
        yield Msgstr(number, -1), _unit(entry, msgid, entry.text("msgstr"), markup)
        return
    for form in range(forms):
        source = entry.text("msgid_plural") if form or forms == 1 else msgid
        yield Msgstr(number, form), _unit(entry, source, entry.forms.get(form, ""), markup)


def _grammar(flags: Sequence[str]) -> str:
    """The grammar of placeholders that a flag names (`c-format`); "" without one; `no-c-format` names none."""
    names = (flag.removesuffix("-format") for flag in flags if flag.endswith("-format"))
    return next((GETTEXT_FLAGS[name] for name in names if name in GETTEXT_FLAGS), "")


def _unit(entry: CatalogueEntry, source: str, target: str, markup: str) -> Unit:
    state = UnitState.FUZZY if target and entry.fuzzy else UnitState.TRANSLATED if target else UnitState.UNTRANSLATED
    kept = "code block" if entry.is_code else "" if has_letters((source,)) else NO_LETTERS
    state = UnitState.KEPT if kept and not target else state
    sides = ((source,) if source else (), (target,) if target else ())
    return Unit(*sides, state, entry.start + 1, markup, kept=kept if state is UnitState.KEPT else "")
