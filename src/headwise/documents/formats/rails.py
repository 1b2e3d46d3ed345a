"""Rails catalogues (`config/locales/en.yml`): https://guides.rubyonrails.org/i18n.html.

The only top-level key is a language; it becomes the target language. Every text below it is a unit, and plurals
(`one`, `other`) get the categories of the target language. Symbols, date and number formats stay. PyYAML reports the
positions of values; a translation keeps the style of its source (plain, quoted, block) where YAML permits that.
"""

import re
from collections.abc import Sequence
from typing import Any

from headwise.documents.formats.plurals import CATEGORIES, missing_categories
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Skipped, plain
from headwise.errors import UserError

LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
PROPERTIES = re.compile(r"(?:[&!]\S*+\s++)+")
HEADER = re.compile(r"[|>][^\n]*\n")
FORMAT = re.compile(r"%[-^_#:]*+\d*+[A-Za-z%]|%<\w++>[-+ #\d.]*+[A-Za-z]")
FORMAT_KEYS = ("format", "formats", "order", "delimiter", "separator")
NOT_PLAIN = ("y", "n")  # booleans in YAML 1.1, as PyYAML's other ones (`no`, `on`), which it recognises
TEXT = "tag:yaml.org,2002:str"
MAX_DEPTH = 100  # nested mappings and lists


class _CatalogueReader:
    """Walks the nodes of a catalogue."""

    def __init__(self, characters: Characters, language: str) -> None:
        self._characters, self._language = characters, language
        self._seen = set[int]()  # nodes with an anchor occur once in the file
        self.passages: list[TextPassage] = []
        self.skipped: list[Skipped] = []

    def walk(self, node: Any, path: tuple[str, ...]) -> None:
        """Find the texts of a node and below."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if len(path) > MAX_DEPTH:
            where = f"{self._characters.path}: line {node.start_mark.line + 1}"
            raise UserError(f"{where}: more than {MAX_DEPTH} nested keys; split the file")
        if node.id == "scalar":
            self._scalar(node, path)
        elif node.id == "sequence":
            for number, child in enumerate(node.value):
                self.walk(child, (*path, str(number)))
        else:
            for key, child in node.value:
                self.walk(child, (*path, str(key.value)))
            self._plurals(node, path)

    def _scalar(self, node: Any, path: tuple[str, ...]) -> None:
        if node.tag != TEXT or not node.value:
            return
        start, end = node.start_mark.index, node.end_mark.index
        kind = _kept(node.value, path)
        if kind:
            self.skipped.append(self._characters.skipped(kind, start, end))
            return
        raw = self._characters.text[start:end]
        properties = PROPERTIES.match(raw)
        start += properties.end() if properties else 0
        self.passages.append(self._passage(start, start + len(self._raw(start, end)), node, path))

    def _raw(self, start: int, end: int) -> str:
        """The value without the blank lines and comments behind it."""
        raw = self._characters.text[start:end]
        return raw if re.match(r"[|>][^\n#]*\+", raw) else raw.rstrip()

    def _passage(self, start: int, end: int, node: Any, path: tuple[str, ...]) -> TextPassage:
        raw = self._characters.text[start:end]
        return TextPassage(
            start, end, (node.value,), lambda parts: _to_yaml(plain(parts), raw), key="/".join(path), markup="ruby"
        )

    def _plurals(self, node: Any, path: tuple[str, ...]) -> None:
        """New keys for the categories that the target language has and the source language has not."""
        children = {str(key.value): (key, child) for key, child in node.value}
        if not children.keys() <= {*CATEGORIES} or any(child.tag != TEXT for _, child in children.values()):
            return
        for name in missing_categories(list(children), self._language):
            first, other = node.value[0][0].start_mark, children["other"][1]
            behind = ", " if node.flow_style else "\n" + " " * first.column
            self.passages.append(
                TextPassage(
                    first.index,
                    first.index,
                    (other.value,),
                    lambda parts, before=f"{name}: ", behind=behind: before + _quoted(plain(parts)) + behind,
                    key="/".join((*path, name)),
                    markup="ruby",
                )
            )


def _kept(text: str, path: tuple[str, ...]) -> str:
    """Why a text is not translated: "" if it is."""
    if re.fullmatch(r":\w+", text):
        return "symbol"
    is_format = any(name in FORMAT_KEYS for name in path[-2:]) or "formats" in path
    has_letters = any(letter.isalpha() for letter in FORMAT.sub("", text))
    return "format" if is_format or ("%" in text and "%{" not in text and not has_letters) else ""


def _to_yaml(text: str, raw: str) -> str:
    """A text as a value, in the style of its source if that can express it."""
    import yaml

    header, written = HEADER.match(raw), ""
    if header:
        indent = re.match(r"[ ]*", next((line for line in raw[header.end() :].split("\n") if line.strip()), " "))
        blanks = indent[0] if indent and indent[0] else " "
        ends = "\n\n" if header[0].startswith(">") else "\n"
        written = header[0] + "\n".join(blanks + line if line else "" for line in text.replace("\n", ends).split("\n"))
        written = written.rstrip()
    elif raw.startswith("'"):
        written = "'" + text.replace("'", "''") + "'"
    elif not raw.startswith('"'):
        written = text
    samples = [f"k: {written}\nend: 1\n", *([] if header else [f"{{k: {written}, end: 1}}"])]  # also in braces
    try:
        same = (
            written
            and text.lower() not in NOT_PLAIN
            and all(yaml.safe_load(sample) == {"k": text, "end": 1} for sample in samples)
        )
    except yaml.YAMLError:
        same = False
    return written if same else _quoted(text)


def _quoted(text: str) -> str:
    r"""A text in double quotes.

    >>> print(_quoted('a "b"\n'))
    "a \"b\"\n"
    """
    import yaml

    return yaml.dump(text, default_style='"', allow_unicode=True, width=float("inf")).rstrip("\n")


def read_rails(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read a catalogue; the target language replaces its top-level key, and is required."""
    try:
        import yaml
    except ImportError:
        raise UserError(f'{path}: .yml files need PyYAML: pip install "headwise[files]"') from None
    characters = Characters(path, data)
    try:
        root = yaml.compose(characters.text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}: line {mark.line + 1}" if mark else path
        what = getattr(error, "problem", None) or "a character that YAML forbids"
        raise UserError(f"{where}: invalid YAML ({what}); correct it") from error
    except RecursionError as error:
        raise UserError(f"{path}: more nested keys than can be read; split the file") from error
    pairs = root.value if root is not None and root.id == "mapping" else []
    if len(pairs) != 1 or not LANGUAGE.fullmatch(str(pairs[0][0].value)) or pairs[0][1].id != "mapping":
        why = "its only top-level key must be a language, such as 'en:'"
        raise UserError(f"{path}: not a Rails catalogue: {why}; --lines translates YAML line by line")
    key, body = pairs[0]
    if not languages[1]:
        raise UserError(f"{path}: which target language? Add --languages {key.value}-TO")
    reader = _CatalogueReader(characters, languages[1])
    reader.walk(body, ())
    start, end = key.start_mark.index, key.end_mark.index
    raw = characters.text[start:end]
    edit = TextPassage(start, end, (languages[1],), lambda parts: _to_yaml(plain(parts), raw))
    return Passages(characters, reader.passages, [edit], reader.skipped)
