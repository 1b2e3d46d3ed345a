"""Suggestions: what is appended can be read as a translation memory, and no other file is written."""

import os
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headwise.errors import UserError
from headwise.localisation.memory import read_memory_pairs
from headwise.serve.parameters import RequestError
from headwise.serve.suggestions import suggestions_file

EN_DE, DE_EN = ("en", "de"), ("de", "en")


def test_suggestions_are_training_pairs(tmp_path: Path) -> None:
    path = str(tmp_path / "suggestions.tmx")
    odd = "a < b & c > 'd' ]]> <!-- \u05d0"
    for _ in range(2):  # a server that was started again
        with suggestions_file(path) as suggestions:
            assert suggestions
            suggestions.add("A dog runs.", "Ein Hund rennt.", EN_DE)
            suggestions.add("Zwei Männer reden.", "Two men talk.", DE_EN)
            suggestions.add(odd, odd.upper(), EN_DE)
            assert read_memory_pairs([path], EN_DE)[0][0] == ("A dog runs.", "Ein Hund rennt.")
    pairs, report = read_memory_pairs([path], EN_DE)
    assert pairs == [
        ("A dog runs.", "Ein Hund rennt."),
        ("Two men talk.", "Zwei Männer reden."),
        (odd, odd.upper()),
    ]
    assert report.units == 6 and report.dropped == Counter(repeats=3)


def test_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "suggestions.tmx"
    with suggestions_file(str(path)) as suggestions:
        assert suggestions
        suggestions.add("a\rb", "c\nd", EN_DE)
    assert [one.text for one in ElementTree.parse(path).iter("seg")] == ["a\rb", "c\nd"]


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[0m", "\ufffe", " \n"])
def test_texts_that_xml_cannot_hold_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "suggestions.tmx"
    with suggestions_file(str(path)) as suggestions:
        assert suggestions
        before = path.read_bytes()
        with pytest.raises(RequestError, match="s is empty or has control characters"):
            suggestions.add("a", text, EN_DE)
    assert path.read_bytes() == before


def test_the_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "suggestions.tmx"
    with suggestions_file(str(path)) as suggestions:
        assert suggestions
        suggestions.most = 1000
        with pytest.raises(RequestError, match="no more suggestions") as refused:
            for number in range(100):
                suggestions.add(f"a {number}", "b", EN_DE)
    assert refused.value.status == 507 and 800 < path.stat().st_size <= 1000
    assert len(read_memory_pairs([str(path)], EN_DE)[0]) > 3


def test_no_other_file_is_written(tmp_path: Path) -> None:
    for name, content, complaint in (
        ("a.tmx", "<tmx version='1.4'><body></body>\n</tmx>\n", "not a file of suggestions"),
        ("a.txt", "kept", "must end with .tmx"),
        ("folder.tmx", None, "Is a directory"),
    ):
        path = tmp_path / name
        if content is None:
            path.mkdir()
        else:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=complaint), suggestions_file(str(path)):
            pass
        assert content is None or path.read_text(encoding="utf-8") == content


def test_one_server_writes_to_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "suggestions.tmx")
    with suggestions_file(path), pytest.raises(UserError, match="another server"), suggestions_file(path):
        pass
    assert os.stat(path).st_mode & 0o077 == 0
