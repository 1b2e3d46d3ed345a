"""JSON messages: nested or flat (i18next, ngx-translate, vue-i18n), of browser extensions, FormatJS, and ARB.

Every string value is a unit. In catalogues whose entries are objects (`MESSAGE_KEYS`), such as the messages.json of a
browser extension, only the message of each entry is; in ARB (https://github.com/google/app-resource-bundle/wiki)
nothing under a key with `@`. Other strings are counted as metadata. Strings without letters stay; keys are never
translated. JSON that is not a catalogue is rejected (`json_kinds.py`).
"""

import json
import re
from collections.abc import Iterator, Sequence

from headwise.errors import UserError
from headwise.localisation.json_kinds import MESSAGE_KEYS, kind_of, why_not_messages
from headwise.localisation.not_translated import beginning_of
from headwise.localisation.passages import Characters, Passages, TextPassage
from headwise.localisation.unit import Code, Parts, Skipped, has_letters, join_parts, plain

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
# Of the messages of each kind, as `Unit.markup`. Flutter reads apostrophes in ARB literally, so no quoting as in ICU.
GRAMMARS = {"extension": "extension", "formatjs": "icu", "structured": "icu", "go": "", "arb": "", "": "laravel"}
MAX_DEPTH = 100  # nested objects and lists
LINKED = re.compile(r"(@(?:\.\w+)?:(?:\{[^{}]*\}|\([^()]*\)|[\w.-]*\w))")  # another message, in vue-i18n
ESCAPED = re.compile(r"\\u(?!00[0-7])[0-9A-Fa-f]{4}")


def read_json_messages(path: str, data: bytes, languages: Sequence[str]) -> Passages:
    """Read JSON messages; `languages` are ignored."""
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
    metadata: list[Skipped] = []
    passages = list(_passages(characters, kind_of(whole), in_ascii, metadata))
    return Passages(characters, passages, skipped=metadata)


def _passages(characters: Characters, kind: str, in_ascii: bool, metadata: list[Skipped]) -> Iterator[TextPassage]:
    """The messages of a catalogue; appends its other texts to `metadata`."""
    text = characters.text
    for path, start, end in _values(text):
        if len(path) > MAX_DEPTH:
            where = f"{characters.path}: line {characters.line(start)}"
            raise UserError(f"{where}: more than {MAX_DEPTH} nested objects and lists; split the file")
        value = json.loads(text[start:end])
        if not _is_message(path, kind):
            if has_letters((value,)):
                metadata.append(Skipped("metadata", characters.line(start), beginning_of(value)))
            continue
        yield TextPassage(
            start,
            end,
            _parts(value),
            lambda parts: json.dumps(plain(parts), ensure_ascii=in_ascii),
            key="/".join(path),
            markup=GRAMMARS[kind],
        )


def _is_message(path: Sequence[str], kind: str) -> bool:
    """Whether the string with these keys is a message in this kind of catalogue."""
    if kind in MESSAGE_KEYS:
        return len(path) == 2 and path[1] == MESSAGE_KEYS[kind]
    return kind != "arb" or not any(key.startswith("@") for key in path)


def _parts(value: str) -> Parts:
    """A text; links to other messages are codes."""
    return join_parts([Code(p) if i % 2 else p for i, p in enumerate(LINKED.split(value)) if p])


def _values(text: str) -> Iterator[tuple[list[str], int, int]]:
    """The span of each string value, with the keys and indices that lead to it."""
    path: list[str] = []
    closers: list[str] = []  # of open objects and lists, the innermost last
    is_value = True
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
            yield path.copy(), *found.span()
        else:
            path[-1] = json.loads(token)
