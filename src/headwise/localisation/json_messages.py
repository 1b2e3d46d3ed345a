"""JSON messages: nested or flat (i18next, ngx-translate, vue-i18n), of browser extensions, FormatJS, and ARB.

Every string value is a unit. In catalogues whose entries are objects (`MESSAGE_KEYS`), such as the messages.json of a
browser extension, only the message of each entry is; in ARB (https://github.com/google/app-resource-bundle/wiki)
nothing under a key with `@`. Strings without letters stay; keys are never translated. JSON that is not a catalogue is
rejected (`json_kinds.py`).
"""

import json
import re
from collections.abc import Iterator, Sequence

from headwise.errors import UserError
from headwise.localisation.json_kinds import MESSAGE_KEYS, kind_of, why_not_messages
from headwise.localisation.passages import Characters, Passages, TextPassage
from headwise.localisation.unit import Code, Parts, join_parts, plain

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
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
    return Passages(characters, _passages(characters, kind_of(whole), in_ascii))


def _passages(characters: Characters, kind: str, in_ascii: bool) -> Iterator[TextPassage]:
    text = characters.text
    for path, start, end in _values(text):
        if len(path) > MAX_DEPTH:
            where = f"{characters.path}: line {characters.line(start)}"
            raise UserError(f"{where}: more than {MAX_DEPTH} nested objects and lists; split the file")
        if kind in MESSAGE_KEYS and (len(path) != 2 or path[1] != MESSAGE_KEYS[kind]):
            continue
        if kind == "arb" and any(key.startswith("@") for key in path):
            continue
        value = json.loads(text[start:end])
        yield TextPassage(
            start,
            end,
            _parts(value),
            lambda parts: json.dumps(plain(parts), ensure_ascii=in_ascii),
            key="/".join(path),
            markup="extension" if kind == "extension" else "",
        )


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
