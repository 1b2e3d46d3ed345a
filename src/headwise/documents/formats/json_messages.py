"""JSON messages: nested or flat (i18next, ngx-translate, vue-i18n), of browser extensions, FormatJS, and ARB.

Every string value is a unit. In catalogues whose entries are objects (`MESSAGE_KEYS`), such as the messages.json of a
browser extension, only the message of each entry is. Plurals (`item_one` and `item_other` of i18next, or an object with
`one` and `other`) get the categories of the target language. In ARB
(https://github.com/google/app-resource-bundle/wiki) nothing under a key with `@` is a unit, and `@@locale` becomes the
target language, if that is given. Other strings are counted as metadata. Strings without letters stay; keys are never
translated. JSON that is not a catalogue is rejected (`json_kinds.py`).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwise.documents.formats.json_kinds import MESSAGE_KEYS, kind_of, why_not_messages
from headwise.documents.formats.plurals import CATEGORIES, missing_categories, plural_rule
from headwise.documents.not_translated import beginning_of
from headwise.documents.passages import Characters, Passages, TextPassage
from headwise.documents.unit import Code, Parts, Skipped, has_letters, join_parts, plain
from headwise.errors import UserError
from headwise.text.language_codes import same_language

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
# Of the messages of each kind, as `Unit.markup`. Flutter reads apostrophes in ARB literally, so no quoting as in ICU.
GRAMMARS = {"extension": "extension", "formatjs": "icu", "structured": "icu", "go": "", "arb": "", "": "laravel"}
MAX_DEPTH = 100  # nested objects and lists
LINKED = re.compile(r"(@(?:\.\w+)?:(?:\{[^{}]*\}|\([^()]*\)|[\w.-]*\w))")  # another message, in vue-i18n
PLURAL_KEY = re.compile(rf"(?:(.*)_)?({'|'.join(CATEGORIES)})", re.DOTALL)
PLURAL_ORDINAL, PLURAL_V3 = "ordinal forms of the target language", "plural forms of the target language (i18next v3)"
ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9A-Fa-f]{4}")


@dataclass(frozen=True)
class StringValue:
    """A string value, its position, and the position of its key."""

    path: tuple[str, ...]  # the keys and indices that lead to it
    start: int
    end: int
    key_start: int
    key_end: int  # as `key_start` in a list
    before: int  # the end of the token before its key


def read_json_messages(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read JSON messages; without a target language plurals keep their categories."""
    characters = Characters(path, data)
    try:
        whole = json.loads(characters.text)
    except json.JSONDecodeError as error:
        where = f"{path}: line {error.lineno}, column {error.colno}"
        raise UserError(f"{where}: invalid JSON ({error.msg}); remove comments and trailing commas") from error
    except (RecursionError, ValueError) as error:
        raise UserError(f"{path}: JSON beyond the limits of the parser ({error}); split the file") from error
    if why := why_not_messages(whole):
        raise UserError(f"{path}: not a message catalogue but {why}; move its texts to a catalogue")
    in_ascii = characters.text.isascii() and ESCAPED.search(characters.text) is not None
    skipped, values, kind = list[Skipped](), list(_values(characters.text)), kind_of(whole)
    passages = list(_passages(characters, values, kind, in_ascii, skipped))
    if not kind:
        passages += _plurals(characters, values, languages[1], in_ascii, skipped)
    return Passages(characters, passages, _locale(characters, values, languages[1]), skipped)


def _locale(characters: Characters, values: Sequence[StringValue], language: str) -> Iterator[TextPassage]:
    """The declared language of an ARB file, if a translation must change it."""
    for one in values:
        if one.path == ("@@locale",) and language and not same_language(_text(characters, one), language):
            yield TextPassage(one.start, one.end, (language.replace("-", "_"),), lambda parts: json.dumps(plain(parts)))


def _passages(
    characters: Characters, values: Sequence[StringValue], kind: str, in_ascii: bool, metadata: list[Skipped]
) -> Iterator[TextPassage]:
    """The messages of a catalogue; appends its other texts to `metadata`."""
    for one in values:
        if len(one.path) > MAX_DEPTH:
            where = f"{characters.path}: line {characters.line(one.start)}"
            raise UserError(f"{where}: more than {MAX_DEPTH} nested objects and lists; split the file")
        value = json.loads(characters.text[one.start : one.end])
        if not _is_message(one.path, kind):
            if has_letters((value,)):
                metadata.append(Skipped("metadata", characters.line(one.start), beginning_of(value)))
            continue
        yield TextPassage(
            one.start,
            one.end,
            _parts(value),
            lambda parts: json.dumps(plain(parts), ensure_ascii=in_ascii),
            key="/".join(one.path),
            markup=GRAMMARS[kind],
        )


def _plurals(
    characters: Characters, values: Sequence[StringValue], language: str, in_ascii: bool, skipped: list[Skipped]
) -> Iterator[TextPassage]:
    """New entries for the categories that the target language has and the source language has not.

    Appends plurals that cannot be completed to `skipped`: ordinal ones, and those of older versions of i18next.
    """
    groups: dict[tuple[str, ...], dict[str, StringValue]] = {}
    of_key = {one.path: one for one in values}
    forms = re.match(r"nplurals=(\d)", plural_rule(language))
    for one in values:
        found = PLURAL_KEY.fullmatch(one.path[-1]) if one.path and one.key_end > one.key_start else None
        if found:
            groups.setdefault((*one.path[:-1], found[1] or ""), {})[found[2]] = one
        elif forms and forms[1] != "2" and (*one.path[:-1], f"{one.path[-1] if one.path else ''}_plural") in of_key:
            skipped.append(characters.skipped(PLURAL_V3, one.start, one.end))
    for (*_, stem), group in groups.items():
        if "other" not in group or (len(group) == 1 and "{{count}}" not in _text(characters, group["other"])):
            continue
        if re.search(r"(?:^|_)ordinal$", stem):
            if forms:
                skipped.append(characters.skipped(PLURAL_ORDINAL, group["other"].start, group["other"].end))
            continue
        for name in missing_categories(list(group), language):
            yield _added(characters, group["other"], f"{stem}_{name}" if stem else name, in_ascii)


def _added(characters: Characters, other: StringValue, key: str, in_ascii: bool) -> TextPassage:
    """A new entry before that of `other`, written in the same way."""
    text = characters.text
    before = json.dumps(key, ensure_ascii=in_ascii) + text[other.key_end : other.start]
    behind = "," + text[other.before : other.key_start]
    return TextPassage(
        other.key_start,
        other.key_start,
        _parts(_text(characters, other)),
        lambda parts: before + json.dumps(plain(parts), ensure_ascii=in_ascii) + behind,
        key="/".join((*other.path[:-1], key)),
        markup=GRAMMARS[""],
    )


def _text(characters: Characters, value: StringValue) -> str:
    return json.loads(characters.text[value.start : value.end])


def _is_message(path: Sequence[str], kind: str) -> bool:
    """Whether the string with these keys is a message in this kind of catalogue."""
    if kind in MESSAGE_KEYS:
        return len(path) == 2 and path[1] == MESSAGE_KEYS[kind]
    return kind != "arb" or not any(key.startswith("@") for key in path)


def _parts(value: str) -> Parts:
    """A text; links to other messages are codes."""
    return join_parts([Code(p) if i % 2 else p for i, p in enumerate(LINKED.split(value)) if p])


def _values(text: str) -> Iterator[StringValue]:
    """The string values, in order."""
    path: list[str] = []
    closers: list[str] = []  # of open objects and lists, the innermost last
    is_value, key, before = True, (0, 0), 0
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in "{[":
            closers.append("}" if token == "{" else "]")
            path.append("" if token == "{" else "0")
            is_value = token == "["
        elif token in "}]":
            closers.pop()
            path.pop()
        elif token == ",":
            is_value = closers[-1] == "]"
            path[-1] = str(int(path[-1]) + 1) if is_value else ""
        elif token == ":":
            is_value = True
        elif is_value:
            where = key if closers[-1:] == ["}"] else (found.start(), found.start())
            yield StringValue(tuple(path), *found.span(), *where, before)
        else:
            path[-1], key = json.loads(token), found.span()
        before = found.end() if token in "{[," else before
