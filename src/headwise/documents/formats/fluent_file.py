"""Fluent (`.ftl`): https://projectfluent.org/fluent/guide/.

The values and attributes of messages and the values of terms are units, and so is each variant of a selector; plural
variants get the categories of the target language. Placeables are codes. `fluent.syntax` reports the positions. Braces,
and characters that are special at the start of a line, are written as literals (`{"{"}`). Invalid entries stay, and so
do the attributes of terms, which only selectors read (`{ -brand.gender -> [masculine] ... }`).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headwise.documents.formats.plurals import CATEGORIES, missing_categories
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Code, Parts, has_letters, join_parts
from headwise.errors import UserError

SPECIAL = re.compile(r"[{}]|(?<=\n)[\[*.]")


class _FluentReader:
    """Walks the syntax tree."""

    def __init__(self, characters: Characters, language: str) -> None:
        self._text, self._language = characters.text, language

    def passages(self, entry: Any) -> Iterator[TextPassage]:
        """The texts of a message or term."""
        name = entry.id.name
        attributes = [] if type(entry).__name__ == "Term" else entry.attributes
        for pattern, key in ((entry.value, name), *((one.value, f"{name}.{one.id.name}") for one in attributes)):
            if pattern is not None:
                yield from self._of_pattern(pattern, key)

    def _of_pattern(self, pattern: Any, key: str) -> Iterator[TextPassage]:
        parts = self._parts(pattern)
        start, end = pattern.elements[0].span.start, pattern.elements[-1].span.end
        spans = [(one.span.start, one.span.end) for one in pattern.elements if type(one).__name__ == "Placeable"]
        if has_letters(parts):
            codes = tuple((*span, self._text[slice(*span)]) for span in spans)
            yield TextPassage(start, end, parts, self._writer(start), codes, key)
        for element in pattern.elements:
            expression = getattr(element, "expression", None)
            if type(expression).__name__ == "SelectExpression":
                yield from self._of_selector(expression, key)

    def _of_selector(self, expression: Any, key: str) -> Iterator[TextPassage]:
        variants = {_variant_name(one): one for one in expression.variants}
        for name, variant in variants.items():
            yield from self._of_pattern(variant.value, f"{key}[{name}]")
        names = [name for name in variants if not name.isdigit()]
        if not {*names} <= {*CATEGORIES}:
            return
        for name in missing_categories(names, self._language):
            default = next(one for one in expression.variants if one.default)
            other, at = variants["other"].value, default.span.start
            indent = self._text[self._text.rfind("\n", 0, at) + 1 : at]
            write = self._writer(other.elements[0].span.start)
            if indent.isspace() and has_letters(self._parts(other)):
                yield TextPassage(
                    at,
                    at,
                    self._parts(other),
                    lambda parts, n=name, write=write, indent=indent: f" [{n}] {write(parts)}\n{indent}",
                    key=f"{key}[{name}]",
                )

    def _parts(self, pattern: Any) -> Parts:
        """The text of a pattern; placeables are codes."""
        return join_parts(
            [
                Code(self._text[one.span.start : one.span.end]) if type(one).__name__ == "Placeable" else one.value
                for one in pattern.elements
            ]
        )

    def _writer(self, start: int) -> Callable[[Parts], str]:
        """Writes a translation at a position: its further lines are indented."""
        line_start = self._text.rfind("\n", 0, start) + 1
        before = self._text[line_start:start]
        indent = before if before.isspace() else before[: len(before) - len(before.lstrip())] + "    "
        return lambda parts: _to_fluent(parts, indent)


def _variant_name(variant: Any) -> str:
    return str(getattr(variant.key, "name", None) or getattr(variant.key, "value", ""))


def _to_fluent(parts: Parts, indent: str) -> str:
    """A translation as a pattern.

    >>> _to_fluent(("a {x} ", Code("{ $n }"), ".\\n.b"), "  ")
    'a {"{"}x{"}"} { $n }.\\n  {"."}b'
    """
    marked = "\n" + "".join("\0" if isinstance(part, Code) else part.replace("\0", "") for part in parts)
    text = SPECIAL.sub(lambda found: '{"' + found[0] + '"}', marked)[1:]
    text = re.sub(r"(?<=\n)[ \t]+|^[ \n]+", lambda found: '{"' + found[0].replace("\n", "") + '"}', text)
    text = re.sub(r"\n(?=[^\n])", "\n" + indent, text.rstrip("\n") + '{""}' * text.endswith(" "))
    codes = iter([part.text for part in parts if isinstance(part, Code)])
    return "".join(next(codes) if piece == "\0" else piece for piece in re.split("(\0)", text))


def read_fluent(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read messages; without a target language selectors keep their variants."""
    try:
        from fluent.syntax import FluentParser
    except ImportError:
        raise UserError(f'{path}: .ftl files need fluent.syntax: pip install "headwise[files]"') from None
    characters = Characters(path, data)
    try:
        body: Sequence[Any] = FluentParser(with_spans=True).parse(characters.text).body
    except RecursionError as error:
        raise UserError(f"{path}: more nested placeables than can be read; simplify the file") from error
    reader = _FluentReader(characters, languages[1])
    entries: list[Any] = [one for one in body if type(one).__name__ in ("Message", "Term")]
    junk: list[Any] = [one for one in body if type(one).__name__ == "Junk"]
    if junk and not entries:
        line = characters.line(junk[0].span.start)
        raise UserError(f"{path}: line {line}: not Fluent: expected an entry such as 'key = Text'")
    skipped = [characters.skipped("invalid entry", one.span.start, one.span.end) for one in junk]
    terms: list[Any] = [one for one in entries if type(one).__name__ == "Term"]
    compared = [one.value.span for term in terms for one in term.attributes]
    skipped += [characters.skipped("value for selectors", span.start, span.end) for span in compared]
    return Passages(characters, [one for entry in entries for one in reader.passages(entry)], skipped=skipped)
