"""String catalogues of Xcode (`.xcstrings`): https://developer.apple.com/documentation/xcode/localizing-and-varying-text-with-a-string-catalog.

A unit is a string that has no translation into the target language, or one of its variations (plural categories,
devices). Translations get the state `needs_review`. An entry with a new translation is written as Xcode writes it, with
its keys in their order; all other entries keep their bytes. Stale strings and `shouldTranslate: false` stay.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from headwise.documents.formats.plurals import CATEGORIES, missing_categories
from headwise.documents.passages import Characters
from headwise.documents.unit import Declared, Parts, Skipped, Unit, UnitState, has_letters, plain
from headwise.errors import UserError

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
MAX_DEPTH = 20  # nested variations


@dataclass(frozen=True)
class Leaf:
    """A string of an entry, by the keys that lead to it in its localization."""

    key: str
    path: tuple[str, ...]


class StringCatalogue:
    """A string catalogue."""

    def __init__(self, characters: Characters, strings: Mapping[str, Any], source: str, target: str) -> None:
        self._characters, self._strings, self._source, self._target = characters, strings, source, target
        self.source_languages, self.target_languages = (Declared(source, 1),), (Declared(target, 1),)
        self._spans = dict(_entry_spans(characters.text))
        self._leaves: list[Leaf] = []
        self.units: list[Unit] = []
        self.skipped: list[Skipped] = []
        for key, entry in strings.items():
            self._add(key, entry)

    def _add(self, key: str, entry: Any) -> None:
        if not isinstance(entry, dict) or not isinstance(entry.get("localizations", {}), dict):
            raise UserError(f"{self._characters.path}: the entry {key[:80]!r} is no object; open the file in Xcode")
        line = self._characters.line(self._spans[key][0])
        stale = entry.get("extractionState") == "stale"
        if stale or entry.get("shouldTranslate") is False:
            self.skipped.append(Skipped("stale string" if stale else "shouldTranslate: false", line, key[:80]))
            return
        localizations = entry.get("localizations", {})
        source = self._source_tree(key, entry)
        there = dict(_strings_of(localizations.get(self._target, {})))
        if there and not {path for path, _ in _strings_of(source)} & there.keys():
            source = {}  # it varies in another way in the target language
        for path, unit in _strings_of(_with_categories(source, self._target)):
            self._unit(Leaf(key, path), unit, there.get(path, {}), line)

    def _source_tree(self, key: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """The localization in the source language; by default the key is the text."""
        return entry.get("localizations", {}).get(self._source) or {"stringUnit": {"state": "new", "value": key}}

    def _unit(self, leaf: Leaf, source: Mapping[str, Any], target: Mapping[str, Any], line: int) -> None:
        texts = [one["value"] if isinstance(one.get("value"), str) else "" for one in (source, target)]
        done = bool(texts[1]) and target.get("state") != "new"
        state = UnitState.TRANSLATED if done else UnitState.UNTRANSLATED
        state = UnitState.FUZZY if done and target.get("state") == "needs_review" else state
        parts = [(text,) if text else () for text in texts]
        self._leaves.append(leaf)
        state = state if has_letters(parts[0]) else UnitState.KEPT
        self.units.append(Unit(parts[0], parts[1], state, line, "apple", "/".join((leaf.key, *leaf.path))))

    def filled(self, targets: Mapping[int, Parts]) -> bytes:
        """See `unit.Document`."""
        changed: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for number, parts in sorted(targets.items()):
            leaf = self._leaves[number]
            changed.setdefault(leaf.key, []).append((leaf.path, plain(parts)))
        text, pieces, at = self._characters.text, list[str](), 0
        for key, texts in sorted(changed.items(), key=lambda one: self._spans[one[0]]):
            start, end = self._spans[key]
            pieces += [text[at:start], _to_json(self._with_target(key, texts), 2, _line_end(text))]
            at = end
        return self._characters.encoded("".join([*pieces, text[at:]]))

    def _with_target(self, key: str, texts: Sequence[tuple[tuple[str, ...], str]]) -> dict[str, Any]:
        """The entry with its new translations; languages are sorted, as by Xcode."""
        entry = deepcopy(self._strings[key])
        localizations = entry.setdefault("localizations", {})
        tree = localizations.get(self._target, {})
        model = _with_categories(self._source_tree(key, entry), self._target)
        for path, text in texts:
            _set(tree, model, path, {"state": "needs_review", "value": text})
        entry["localizations"] = dict(sorted({**localizations, self._target: tree}.items()))
        return dict(sorted(entry.items())) if "localizations" not in self._strings[key] else entry


def _strings_of(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every `stringUnit` of a localization, with the keys that lead to it."""
    if not isinstance(tree, dict) or len(path) > MAX_DEPTH:
        return
    for name, child in tree.items():
        if name == "stringUnit" and isinstance(child, dict):
            yield (*path, name), child
        else:
            yield from _strings_of(child, (*path, name))


def _with_categories(tree: Any, language: str, depth: int = 0) -> Any:
    """A localization whose plurals have the categories of a language."""
    if not isinstance(tree, dict) or depth > MAX_DEPTH:
        return tree
    found = {name: _with_categories(child, language, depth + 1) for name, child in tree.items()}
    plural = found.get("plural")
    if isinstance(plural, dict):
        every = {**plural, **{name: plural["other"] for name in missing_categories(list(plural), language)}}
        found["plural"] = {name: every[name] for name in CATEGORIES if name in every}
    return found


def _set(tree: dict[str, Any], model: Mapping[str, Any], path: Sequence[str], unit: Mapping[str, str]) -> None:
    """Set a `stringUnit`; what stands beside it in the source, such as a format specifier, is copied."""
    for name in path[:-1]:
        beside = {k: v for k, v in model.items() if not isinstance(v, dict)}
        for key, value in beside.items():
            tree.setdefault(key, value)
        tree, model = tree.setdefault(name, {}), model[name]
        for key, value in model.items():
            if not isinstance(value, dict):
                tree.setdefault(key, value)
    tree[path[-1]] = dict(unit)


def _entry_spans(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The span of the value of each entry of `strings`."""
    depth, key, names, start = 0, "", [""], 0
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in "{[":
            depth += 1
            start = found.start() if depth == 3 else start
            names.append("")
        elif token in "}]":
            depth -= 1
            names.pop()
            if depth == 2 and names[1] == "strings":
                yield names[2], (start, found.end())
        elif token == ":":
            names[-1] = key
        elif token != ",":
            key = json.loads(token)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text[:200] else "\n"


def _to_json(value: Any, depth: int, line_end: str) -> str:
    r"""JSON as Xcode writes it.

    >>> print(_to_json({"a": {}, "b": [1]}, 0, "\n"))
    {
      "a" : {
    <BLANKLINE>
      },
      "b" : [
        1
      ]
    }
    """
    indent, outer = line_end + "  " * (depth + 1), line_end + "  " * depth
    if isinstance(value, dict):
        members = [
            f"{json.dumps(name, ensure_ascii=False)} : {_to_json(child, depth + 1, line_end)}"
            for name, child in value.items()
        ]
        return "{" + (indent + f",{indent}".join(members) if members else line_end) + outer + "}"
    if isinstance(value, list):
        items = [_to_json(child, depth + 1, line_end) for child in value]
        return "[" + (indent + f",{indent}".join(items) if items else line_end) + outer + "]"
    return json.dumps(value, ensure_ascii=False)


def read_xcstrings(path: str, data: bytes, languages: Sequence[str]) -> StringCatalogue:
    """Read a string catalogue; the target language is required."""
    characters = Characters(path, data)
    try:
        whole = json.loads(characters.text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: line {error.lineno}: invalid JSON ({error.msg}); open it in Xcode") from error
    except (RecursionError, ValueError) as error:
        raise UserError(f"{path}: JSON beyond the limits of the parser ({error}); split the file") from error
    if not isinstance(whole, dict) or not isinstance(whole.get("strings"), dict) or "sourceLanguage" not in whole:
        raise UserError(f"{path}: not a string catalogue of Xcode: it lacks 'sourceLanguage' and 'strings'")
    source = str(whole["sourceLanguage"])
    if not languages[1]:
        raise UserError(f"{path}: which target language? Add --languages {source}-TO")
    return StringCatalogue(characters, whole["strings"], source, languages[1])
