"""Suggestions: what is appended can be read as a translation memory, and no other file is written."""

import os
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headwise.documents.memory import read_memory_pairs
from headwise.errors import UserError
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
    assert report.units == 6 and report.dropped == Counter(repeated=3)


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


def test_a_server_that_is_killed_while_it_writes_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "suggestions.tmx"
    for call in ("replace", "fdopen"):  # before the new file takes its place; before it has content
        with suggestions_file(str(path)) as suggestions:
            assert suggestions
            suggestions.add(call, "ja", EN_DE)
            before = path.read_bytes()
            if not (child := os.fork()):
                setattr(os, call, lambda *arguments, **more: os._exit(9))
                suggestions.add("a" * 100_000, "b", EN_DE)
            os.waitpid(child, 0)
        assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 2
    with suggestions_file(str(path)) as suggestions:
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("cut", [1, 10, 30, 100])
def test_a_file_that_ends_in_a_unit_is_repaired(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "suggestions.tmx"
    with suggestions_file(str(path)) as suggestions:
        assert suggestions
        suggestions.add("A dog runs.", "Ein Hund rennt.", EN_DE)
        suggestions.add("A cat sleeps.", "Eine Katze schläft.", EN_DE)
    path.write_bytes(path.read_bytes()[:-cut])
    with suggestions_file(str(path)) as suggestions:
        assert suggestions
        suggestions.add("Two.", "Zwei.", EN_DE)
    left = [source for source, _ in read_memory_pairs([str(path)], EN_DE)[0]]
    assert left == ["A dog runs.", *(["A cat sleeps."] if cut < 20 else []), "Two."]


def test_a_file_that_another_program_has_replaced_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "suggestions.tmx"
    with suggestions_file(str(path)) as suggestions:
        assert suggestions
        (tmp_path / "edited").write_text("edited")
        os.replace(tmp_path / "edited", path)
        with pytest.raises(RequestError, match="another program"):
            suggestions.add("a", "b", EN_DE)
    assert path.read_text() == "edited"


def test_the_rights_of_the_file_stay_and_a_link_is_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "suggestions.tmx", tmp_path / "link.tmx"
    with suggestions_file(str(path)):
        path.chmod(0o640)
    link.symlink_to(path)
    with suggestions_file(str(link)) as suggestions:
        assert suggestions
        suggestions.add("a", "b", EN_DE)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640 and len(read_memory_pairs([str(path)], EN_DE)[0])


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
