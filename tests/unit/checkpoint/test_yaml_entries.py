"""YAML of Marian: ordinary forms of keys and values, everything as text, and no nesting."""

from pathlib import Path

import pytest

from headwise.errors import UserError
from headwise.pytorch.checkpoint.marian import STRANGE, yaml_entries

yaml = pytest.importorskip("yaml")
PATH = Path("vocab.yml")


def read(text: str) -> dict[str, str | list[str]]:
    return {key: value for key, value, _ in yaml_entries(PATH, text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a": 0\n? "b"\n: 1\n', {"a": "0", "b": "1"}),
        ("? b\n\n# note\n:   1 # note\n", {"b": "1"}),
        ("---\na: 0\n...\n", {"a": "0"}),
        ('{"a": 0, "b": 1}', {"a": "0", "b": "1"}),
        ("no: 0\nnull: 1\n~: 2\n1: 3\n", {"no": "0", "null": "1", "~": "2", "1": "3"}),
        ("2020-01-01: 4\n<<: 5\n=: 6\n", {"2020-01-01": "4", "<<": "5", "=": "6"}),
        ("'it''s': 0\n\"a\\\"\\x42\\u2028\\N\\_\": 1\n", {"it's": "0", 'a"B\u2028\x85\xa0': "1"}),
        ("a:\n- x\n- 'y'\nb: []\nc: ''\n", {"a": ["x", "y"], "b": [], "c": ""}),
        ("a: 0\r\nb: 1\r\n", {"a": "0", "b": "1"}),
        ("", {}),
    ],
)  # fmt: skip
def test_entries(text: str, expected: dict[str, str | list[str]]) -> None:
    assert read(text) == expected


def test_what_pyyaml_writes() -> None:
    tokens = ["=" * 140, "a\x85b", "a\u2028b", ":", "#", "- ", "'", '"', "\\", "yes", "1.5", "\ufeff", " ", "\x07", "é"]
    ids = {token: str(i) for i, token in enumerate(tokens)}
    for settings in ({}, {"default_style": '"'}, {"width": 20}, {"allow_unicode": True}):
        if settings == {"allow_unicode": True}:
            del ids["a\x85b"]  # which PyYAML does not read either
        assert read(yaml.safe_dump({token: int(i) for token, i in ids.items()}, sort_keys=False, **settings)) == ids


@pytest.mark.parametrize("quotes", ['"', "'", ""])
def test_characters_that_are_no_line_breaks_in_yaml_1_2(quotes: str) -> None:
    for one in STRANGE:
        assert read(f"{quotes}a{one}b{quotes}: 1\nc: 2\n") == {f"a{one}b": "1", "c": "2"}


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: 0\nb\n", 3), ("a: {b: 1}\n", 1), ("a: 0\nb: [[1]]\n", 2), ("- a\n", 1), ("a\n", 1), ("? [a]\n: 1\n", 1),
     ("a: 0\nb: *x\n", 2), ("a: 0\nb: 'x\n", 3), ("a: 0\n\tb: 1\n", 2), ("[" * 100000, 1), ("a: 1\n---\nb: 2\n", 3)],
)  # fmt: skip
def test_other_files_are_named_with_the_line(text: str, line: int) -> None:
    with pytest.raises(UserError, match=rf"vocab\.yml: line {line}: "):
        read(text)


def test_repeated_keys_are_all_seen() -> None:
    assert list(yaml_entries(PATH, "a: 0\na: 1\n")) == [("a", "0", 1), ("a", "1", 2)]
