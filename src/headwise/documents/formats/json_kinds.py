"""Recognises kinds of JSON message catalogues, and JSON that is not a catalogue (`package-lock.json`, schemas).

A file is not a catalogue if its keys are those of a known other kind of file, or if it has more numbers and identifiers
than different texts. See `json_messages.py` for positions of texts.
"""

import re
from collections.abc import Iterator
from typing import Any

# The key of the text in catalogues whose entries are objects: extensions of browsers, FormatJS, Transifex, go-i18n.
MESSAGE_KEYS = {"extension": "message", "formatjs": "defaultMessage", "structured": "string", "go": "translation"}
OTHER_FILES = {  # top-level keys that only such files have, and the beginning of their values
    "lockfileVersion": ("a package lock", r"\d"),
    "compilerOptions": ("settings of TypeScript", r""),
    "manifest_version": ("the manifest of an extension", r"\d"),
    "start_url": ("the manifest of a web app", r"[./h]"),
    "$schema": ("a JSON schema", r"https?://json-schema\.org"),
    "@context": ("JSON-LD", r"https?:|[\[{]"),
    "openapi": ("an API description", r"\d+\."),
    "swagger": ("an API description", r"\d+\."),
    "nbformat": ("a notebook", r"\d"),
    "devDependencies": ("a package", r"\{"),
    "dependencies": ("a package", r"\{.*: '[\^~]?\d"),
    "type": ("settings of a program", r"(?:module|commonjs)$"),
    "content-hash": ("a package lock", r"\w{32}"),
}
GEOJSON = ("FeatureCollection", "Feature", "GeometryCollection", "Topology")
IDENTIFIER_SIGN = re.compile(r"[\d/\\_=#@~^]|[.:](?=[!-~])")  # a word with one is no text


def kind_of(whole: Any) -> str:
    """A key of `MESSAGE_KEYS`, "arb", or "" for nested or flat messages."""
    entries = list(whole.values() if isinstance(whole, dict) else whole if isinstance(whole, list) else ())
    if entries and all(isinstance(entry, dict) for entry in entries):
        for kind, key in MESSAGE_KEYS.items():
            if all(isinstance(entry.get(key), str) for entry in entries) and (
                kind in ("extension", "formatjs") or _are_described(entries, key)
            ):
                return kind
    if not isinstance(whole, dict):
        return ""
    is_arb = any(key.startswith("@@") or f"@{key}" in whole for key in whole) or "@metadata" in whole
    return "arb" if is_arb else ""


def _are_described(entries: list[Any], key: str) -> bool:
    """Whether entries have the text and a description, and are not messages with this key."""
    return all(entry.keys() <= {key, "id", "description", "character_limit", "context", "hash"} for entry in entries)


def why_not_messages(whole: Any) -> str:
    """The kind of a file that is no message catalogue; "" for a catalogue.

    >>> why_not_messages({"name": "a", "lockfileVersion": 3}), why_not_messages({"title": "A dog"})
    ("a package lock: it has the key 'lockfileVersion'", '')
    """
    if isinstance(whole, dict):
        if whole.get("type") in GEOJSON:
            return f"GeoJSON: its type is '{whole['type']}'"
        for key, (what, beginning) in OTHER_FILES.items():
            if key in whole and re.match(beginning, str(whole[key])):
                return f"{what}: it has the key '{key}'"
    if kind_of(whole):
        return ""
    if isinstance(whole, list) and whole and all(isinstance(entry, dict) for entry in whole):
        return "a list of records"
    texts, words, others = set[str](), set[str](), 0
    for leaf in _leaves(whole):
        if not isinstance(leaf, str):
            others += 1
        elif any(letter.isalpha() for letter in leaf):
            if "{" not in leaf and _is_identifier(leaf):
                others += 1
            else:
                (words if leaf.isascii() and leaf.isalpha() and leaf.islower() else texts).add(leaf)
    likely = len(texts) + len(words) / 2  # a word may be a text or an identifier, such as "module"
    return f"data: {others:,} numbers and identifiers, and {len(texts):,} texts" if others > likely else ""


def _is_identifier(text: str) -> bool:
    """Whether a text is one ASCII word with a digit or another sign of an identifier.

    >>> _is_identifier("^1.2.0"), _is_identifier("Sign-in."), _is_identifier("2 dogs")
    (True, False, False)
    """
    is_word = text.isascii() and text.isprintable() and " " not in text
    return is_word and IDENTIFIER_SIGN.search(text) is not None


def _leaves(whole: Any) -> Iterator[Any]:
    """All strings, numbers and constants."""
    rest = [whole]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += one.values()
        elif isinstance(one, list):
            rest += one
        else:
            yield one
