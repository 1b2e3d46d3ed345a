"""Documents that stand-in models fill through the pipeline of `headwise.documents.fill`, and checks of the result.

A stand-in returns words of its input and says exactly which word each of them translates, so every other difference is
Headwise's. Used by `round_trips.py`.
"""

import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

from document_readers import ARCHIVES, Reading, faults, reading_of, reading_of_text

from headwise.documents.fill import TranslatedUnit, targets_of, translation_steps
from headwise.documents.reading import parse_document
from headwise.documents.segments import SentenceTranslation
from headwise.documents.unit import Code, Document, Parts, UnitState, plain
from headwise.errors import UserError
from headwise.text.files.links import Links

FLOWING = (".html", ".htm", ".xhtml", ".md", ".markdown", ".rst", ".rest", *ARCHIVES)  # may enclose a whole text
SUBTITLES = (".srt", ".vtt")  # where a text ends depends on its sentences
BILINGUAL = (".po", ".pot", ".xliff", ".xlf", ".sdlxliff", ".mqxliff", ".tmx", ".ts", ".xcstrings", ".csv")
IDENTITY = "identity with markup"
TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
HALF = re.compile(r"<(bpt|ept|sc|ec)\b[^<>]*?\s(?:rid|startRef|id|i)=[\"']([^\"'<>]*)")  # may cross, in order
PLACEHOLDER = re.compile(
    r"%(?:\d+\$|\([\w.-]+\))[-+#0,]*\d*(?:\.\d+)?(?:hh?|ll?|[zjtLq])?[diouxXeEfFgGcsp@]"
    r"|(?<![\d%])%(?:hh?|ll?|[zjtLq])?[diouxXeEfFgGcsp@](?![a-z]{2})"
    r"|[$%#]?(?:\{\{ ?[$@]?\w[\w.:-]* ?\}\}|\{ ?[$@]?\w[\w.:-]* ?\})"
)
ICU_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal|choice)\b")
SUSPECTS = 5  # units that are tried alone, to find the cause
EXAMPLES = 20  # of a suffix, a stand-in and a kind of failure

StandIn = Callable[[str], tuple[str, Links]]


def identity(text: str) -> tuple[str, Links]:
    """The same text.

    >>> identity("dog")
    ('dog', frozenset({(0, 0)}))
    """
    return text, frozenset((i, i) for i in range(len(text.split())))


def reversed_words(text: str) -> tuple[str, Links]:
    """The words from the last to the first, in capitals.

    >>> text, links = reversed_words("a dog")
    >>> text, sorted(links)
    ('DOG A', [(0, 1), (1, 0)])
    """
    words = text.upper().split()
    return " ".join(reversed(words)), frozenset((i, len(words) - 1 - i) for i in range(len(words)))


def random_words(text: str) -> tuple[str, Links]:
    """The words in capitals and in random order, with random links: several of a word, or none."""
    sampler, words = random.Random(zlib.crc32(text.encode())), text.upper().split()
    n = len(words)
    sampler.shuffle(words)
    links = ((i, sampler.randrange(n)) for i in range(n) for _ in range(sampler.choice((0, 1, 1, 2, 3))))
    return " ".join(words), frozenset(links)


STAND_INS: dict[str, tuple[StandIn, bool]] = {  # and whether the model was trained on markers
    IDENTITY: (identity, False),
    "reversed word order": (reversed_words, False),
    "random alignment": (random_words, False),
    "reversed word order, with markers": (reversed_words, True),
}


@dataclass
class Checked:
    """Results of one stand-in with the files of one suffix."""

    files: int = 0
    units: int = 0  # with a translation
    counts: Counter[str] = field(default_factory=Counter)  # by kind of failure or report
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, what: str) -> None:
        """Count a failure, with the first ones as examples."""
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {what}")


FAILURES = ("invalid", "codes", "placeholders", "not identical")
REPORTS = ("markup lost", "left untranslated", "guessed")


def read_either(path: Path, data: bytes) -> tuple[Document, Sequence[str]]:
    """A document and its languages: those that it declares, or else English and German."""
    try:
        return parse_document(str(path), data), ("", "")
    except UserError as error:
        if "language" not in str(error):
            raise
        return parse_document(str(path), data, ("en", "de")), ("en", "de")


def translate(document: Document, stand_in: StandIn, markers: bool) -> list[TranslatedUnit]:
    """Translate all units, as `fill.translate_units` does it with a model."""
    steps = translation_steps(document, "en", markers, again=True)
    try:
        request = next(steps)
        while True:
            outputs = list(map(stand_in, request.texts))
            links = [found if request.aligned else None for _, found in outputs]
            request = steps.send(
                [
                    SentenceTranslation(t, log_prob=-0.1, n_tokens=(0, 1), links=a)
                    for (t, _), a in zip(outputs, links, strict=True)
                ]
            )
    except StopIteration as end:
        return end.value


def check(name: str, path: Path, data: bytes, original: Reading | str, result: Checked) -> None:
    """Fill a document with the stand-in of this name, and count failures and reports."""
    document, languages = read_either(path, data)
    units = translate(document, *STAND_INS[name])
    result.files += 1
    for one in units:
        result.units += bool(one.target)
        for kind, what in _reports(one) if name != IDENTITY else ():
            result.counts[kind] += what
        for kind in _unit_failures(one, name == IDENTITY):
            result.add(kind, f"{path}: {plain(one.unit.source)!r} becomes {plain(one.target)!r}")
    filled = document.filled(targets_of(units))
    for kind, what in _found_by_readers(path, original, document, units):
        result.add(kind, f"{path}: {what}")
    for kind, what in _file_failures(path, data, filled, document, units, languages, name == IDENTITY):
        result.add(kind, f"{path}: {what}")


def _found_by_readers(
    path: Path, original: Reading | str, document: Document, units: Sequence[TranslatedUnit]
) -> Iterator[tuple[str, str]]:
    """What another reader finds wrong with the filled document, with a unit that causes it if one of the first does."""
    for kind, what in faults(original, reading_of(path.name, document.filled(targets_of(units)))):
        yield kind, what + _cause(kind, path, original, document, units)


def _cause(kind: str, path: Path, original: Reading | str, document: Document, units: Sequence[TranslatedUnit]) -> str:
    """The text of a unit whose translation alone has this kind of fault; "" if none of the first suspects has."""
    pairs = ((one, plain(one.unit.source), plain(one.target)) for one in units if one.target)
    suspects = (pair for pair in pairs if any(faults(*(reading_of_text(path.name, text) for text in pair[1:]))))
    for one, source, target in islice(suspects, SUSPECTS):
        alone = reading_of(path.name, document.filled({one.number: one.target}))
        if kind in dict(faults(original, alone)):
            return f": {source!r} becomes {target!r}"
    return ""


def _reports(one: TranslatedUnit) -> Iterator[tuple[str, bool]]:
    warnings = " ".join(one.warnings)
    yield "markup lost", "markup lost" in warnings
    yield "left untranslated", "left untranslated" in warnings
    yield "guessed", "guessed" in warnings or "alignment" in warnings


def _unit_failures(one: TranslatedUnit, is_identity: bool) -> Iterator[str]:
    """What is wrong with the translation of a unit."""
    source, target = one.unit.source, one.target
    if not target:
        return
    if is_identity and plain(target) != plain(source):
        yield "not identical"
    if placeholders(source) != placeholders(target):
        yield "placeholders"
    if any("markup lost" in warning for warning in one.warnings):
        return
    if codes(source) != codes(target):
        yield "codes"
    elif is_nested(source) and not is_nested(target):
        yield "invalid"


def codes(parts: Parts) -> Counter[str]:
    """The inline codes of a text, and the tags that are written in it.

    >>> codes((Code("<g>", inline=True), "a <b>", "dog", Code("</g>", inline=True)))
    Counter({'<g>': 1, '</g>': 1, '<b>': 1})
    """
    inline = Counter(part.text for part in parts if isinstance(part, Code) and part.inline)
    return inline + Counter(found[0] for found in TAG.finditer(_text(parts)))


def is_nested(parts: Parts) -> bool:
    """Whether every end tag of a text closes the last open element, and no half of a pair precedes its beginning.

    Elements without an end tag do not count.

    >>> is_nested(("<b>a <i>dog</i><br></b>",)), is_nested(("<b>a <i>dog</b></i>",)), is_nested(("</b>a<b>",))
    (True, False, False)
    >>> is_nested(('<ept id="1"/>a<bpt id="1"/>',))
    False
    """
    begun: set[str] = set()
    for kind, name in HALF.findall(plain(parts)):
        if kind in ("ept", "ec") and name not in begun:
            return False
        begun.add(name)
    tags = [(found[1], found[2], found[3]) for found in TAG.finditer(plain(parts))]
    closed = {name for end, name, _ in tags if end}
    opened: list[str] = []
    for end, name, empty in tags:
        if not end and not empty and name in closed:
            opened.append(name)
        elif end and (not opened or opened.pop() != name):
            return False
    return not opened


def placeholders(parts: Parts) -> Counter[str]:
    """The placeholders of a text, by another expression than that of `placeholders.py`; none in ICU alternatives.

    >>> sorted(placeholders(("%d of {name}: 100%", Code("<x/>", inline=True), "a")))
    ['%d', '{name}']
    """
    text = _text(parts)
    return Counter() if ICU_CHOICE.search(text) else Counter(PLACEHOLDER.findall(text))


def _text(parts: Parts) -> str:
    """The text with a null character for each inline code."""
    return "".join("\0" if isinstance(part, Code) and part.inline else plain((part,)) for part in parts)


def _file_failures(
    path: Path,
    data: bytes,
    filled: bytes,
    document: Document,
    units: Sequence[TranslatedUnit],
    languages: Sequence[str],
    is_identity: bool,
) -> Iterator[tuple[str, str]]:
    """What is wrong with a file when it is read again."""
    is_own_language = path.suffix.lower() not in BILINGUAL and languages == ("", "")
    if is_identity and is_own_language:
        contents = zip(_contents(path, data), _contents(path, filled), strict=True)
        if different := next(((one, other) for one, other in contents if one != other), None):
            yield "not identical", _first_difference(*different)
    try:
        again = _read_again(path, filled, languages)
    except UserError as error:
        yield "invalid", f"Headwise cannot read it again: {error}"
        return
    if len(again.units) != len(document.units) and path.suffix.lower() not in SUBTITLES:
        yield "invalid", f"it has {len(again.units)} texts, not {len(document.units)}"
    if len(again.units) != len(document.units):
        return
    for one in units:
        unit = again.units[one.number]
        if one.target and unit.state is not UnitState.KEPT and path.suffix.lower() not in FLOWING:
            wanted, found = (_names(parts) for parts in (one.target, unit.target or unit.source))
            if wanted != found:
                texts = f"{plain(one.target)!r} is read as {plain(unit.target or unit.source)!r}"
                yield "codes", f"lost {dict(wanted - found)}, added {dict(found - wanted)}: {texts}"


def _read_again(path: Path, filled: bytes, languages: Sequence[str]) -> Document:
    """The filled document, whose language may have become that of the translation."""
    try:
        return parse_document(str(path), filled, languages)
    except UserError:
        if languages == ("", ""):
            raise
        return parse_document(str(path), filled, ("de", "fr"))


def _names(parts: Parts) -> Counter[str]:
    """The tags in inline codes, without attributes, whose values may be translated."""
    inline = "".join(part.text for part in parts if isinstance(part, Code) and part.inline)
    return Counter("".join(found) for found in TAG.findall(inline))


def _contents(path: Path, data: bytes) -> list[bytes]:
    """The file, or the members of an archive, because compression may differ."""
    if path.suffix.lower() not in ARCHIVES:
        return [data]
    with ZipFile(BytesIO(data)) as archive:
        return [archive.read(name) for name in archive.namelist()]


def _first_difference(data: bytes, filled: bytes) -> str:
    pairs = zip(data.splitlines(), filled.splitlines(), strict=False)
    one, other = next(((a, b) for a, b in pairs if a != b), (b"", b""))
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, at - 60)
    before, after = (line[start : at + 60].decode(errors="replace") for line in (one, other))
    return f"the bytes differ: {before!r} became {after!r}"
