"""Which JSON files are message catalogues, and which are not."""

import json
from typing import Any

import pytest

from headwise.documents.reading import parse_document
from headwise.documents.unit import UnitState, plain
from headwise.errors import UserError


def texts(whole: Any) -> list[str]:
    """The texts to translate."""
    units = parse_document("a.json", json.dumps(whole).encode()).units
    return [plain(unit.source) for unit in units if unit.state is UnitState.UNTRANSLATED]


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        ({"file_one": "{{count}} file", "file_other": "{{count}} files", "file_plural": "files"}, 3),
        ({"a": {"title": "Sign in", "max": 5}, "b": ["Mon", "Tue"], "url": "https://x.org", "name": "Name"}, 5),
        ({"version": "1.2", "name": "Name", "type": "Type", "dependencies": "Dependencies", "rules": "Rules"}, 4),
        ({"type": "Type of the file", "properties": {"title": "Properties"}, "icons": {"display": "Show"}}, 3),
        ({"hi": {"message": "Hello", "description": "says hello"}}, 1),
        ({"hi": {"defaultMessage": "Hello", "description": "says hello"}}, 1),
        ([{"id": "hi", "defaultMessage": "Hello", "description": "says hello", "file": "a.js"}], 1),
        ([{"id": "hi", "translation": "Hello"}, {"id": "by", "translation": "Good bye"}], 2),
        ({"hi": {"string": "Hello", "context": "menu"}}, 1),
        ({"a": {"string": "Hello", "number": "Number"}}, 2),
        ({"@@locale": "en", "hi": "Hi", "@hi": {"placeholders": {"n": {"type": "int", "a": 1, "b": 2}}}}, 1),
        ({"@metadata": {"authors": ["Ann Lee"]}, "hi": "Hi"}, 1),
        ({"你好": "你好", "b": "是"}, 2),
        ({"a": "", "b": ""}, 0),
        ({}, 0),
    ],
)  # fmt: skip
def test_catalogues_are_read(whole: Any, expected: int) -> None:
    assert len(texts(whole)) == expected


@pytest.mark.parametrize(
    ("whole", "what"),
    [
        ({"name": "a", "lockfileVersion": 3, "packages": {}}, "a package lock: it has the key 'lockfileVersion'"),
        ({"name": "a", "description": "A good package", "devDependencies": {"b": "^1.0.0"}}, "a package"),
        ({"name": "a", "description": "A good package", "dependencies": {"b": "~1.0.0"}}, "a package"),
        ({"type": "module"}, "settings of a program"),
        ({"compilerOptions": {"strict": True}}, "settings of TypeScript"),
        ({"type": "FeatureCollection", "features": []}, "GeoJSON: its type is 'FeatureCollection'"),
        ({"v": "5.5", "fr": 25, "w": 512, "nm": "Loading", "layers": [{"ty": 4, "nm": "Shape layer"}]}, "data: 3 numb"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "title": "A thing"}, "a JSON schema"),
        ({"openapi": "3.0.1", "info": {"title": "An API"}}, "an API description"),
        ([{"name": "Germany", "code": "DE"}, {"name": "France", "code": "FR"}], "a list of records"),
        ({"images": [{"idiom": "universal", "filename": "a.png"}], "info": {"author": "xcode", "version": 1}}, "data"),
        ({"colors": {"a": "#ffaa00", "b": "#abc"}, "name": "Dark theme"}, "data: 2 numbers and identifiers, and 1 te"),
        ({"nodes": [{"kind": "Text node", "at": 1}, {"kind": "Text node", "at": 2}]}, "data: 2 numbers"),
        (5, "data: 1 numbers"),
    ],
)  # fmt: skip
def test_other_files_are_rejected(whole: Any, what: str) -> None:
    with pytest.raises(UserError) as caught:
        texts(whole)
    said = str(caught.value)
    assert said.startswith(f"a.json: not a message catalogue but {what}") and "\n" not in said


def test_links_to_other_messages_are_codes() -> None:
    assert texts({"a": "@:menu.title", "b": "@.lower:{'menu.open'}", "c": "See @:menu.help."}) == ["See @:menu.help."]
