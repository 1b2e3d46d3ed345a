"""gettext's catalogues keep every byte but those of the translations that are filled in."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from headwise.errors import UserError
from headwise.localisation.po import read_po
from headwise.localisation.unit import UnitState

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Plural-Forms: nplurals=3; plural=(n%3);\\n"\n'
)
ENTRIES = (
    HEADER
    + """
# a note of the translator
#. a note of the programmer
#: a.py:1   b.py:2
#, python-format
#| msgid "Open"
msgctxt "menu"
msgid "Open %s\\n"
msgstr ""

#, fuzzy
msgid "Close"
msgstr "Zu"

msgid   "Done"
msgstr "Fertig"

msgid "one file"
msgid_plural "%d files"
msgstr[0] "eine Datei"
msgstr[1] ""
msgstr[2] ""

#~ msgid "old"
#~ msgstr "alt"
"""
)


def test_units_are_the_entries_and_the_forms_of_their_plurals() -> None:
    units = read_po("a.po", ENTRIES.encode(), ("", "")).units
    assert [(unit.source, unit.target, unit.state) for unit in units] == [
        (("Open %s\n",), (), UnitState.UNTRANSLATED),
        (("Close",), ("Zu",), UnitState.FUZZY),
        (("Done",), ("Fertig",), UnitState.TRANSLATED),
        (("one file",), ("eine Datei",), UnitState.TRANSLATED),
        (("%d files",), (), UnitState.UNTRANSLATED),
        (("%d files",), (), UnitState.UNTRANSLATED),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-15"])
def test_only_the_filled_entry_changes(end: str, encoding: str) -> None:
    text = ENTRIES.replace("UTF-8", encoding).replace("\n", end)
    found = read_po("a.po", text.encode(encoding), ("", "")).filled({0: ("Öffne %s",)}).decode(encoding)
    before = f'#, python-format{end}#| msgid "Open"{end}msgctxt "menu"{end}msgid "Open %s\\n"{end}msgstr ""{end}'
    after = f'#, fuzzy, python-format{end}#| msgid "Open"{end}msgctxt "menu"{end}msgid "Open %s\\n"{end}'
    assert found == text.replace(before, f'{after}msgstr "Öffne %s\\n"{end}')


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", ["", "\n\n", "#. c\n#: a.c:1\n", "\n# z\n#, python-format\n"])
def test_a_catalogue_without_a_header_is_filled_from_its_first_entry(before: str, end: str) -> None:
    text = f'{before}msgid "Done"\nmsgstr ""\n\n#. y\nmsgid "one"\nmsgid_plural "two"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    document = read_po("a.po", text.replace("\n", end).encode(), ("", ""))
    assert document.filled({}).decode() == text.replace("\n", end)
    assert document.units[0].line == len(before) - len(before.lstrip("\n")) + 1
    found = document.filled({0: ("Zurück",), 2: ("zwei",)}).decode()
    fuzzy = text.replace("#,", "#, fuzzy,") if "#," in text else text.replace('msgid "D', '#, fuzzy\nmsgid "D')
    filled = fuzzy.replace('msgid "one"', '#, fuzzy\nmsgid "one"').replace('msgstr[1] ""', 'msgstr[1] "zwei"')
    assert found == filled.replace('msgstr ""', 'msgstr "Zurück"').replace("\n", end)


def test_forms_of_a_plural_are_filled_beside_those_that_are_there() -> None:
    found = read_po("a.po", ENTRIES.encode(), ("", "")).filled({4: ("%d Dateien",), 5: ("%d Dateien!",)}).decode()
    assert 'msgstr[0] "eine Datei"\nmsgstr[1] "%d Dateien"\nmsgstr[2] "%d Dateien!"\n' in found
    assert '#, fuzzy\nmsgid "one file"\n' in found


def test_every_open_entry_can_be_filled_at_once() -> None:
    found = read_po(
        "a.po", read_po("a.po", ENTRIES.encode(), ("", "")).filled({0: ("Öffne %s",), 4: ("x",), 5: ("y",)}), ("", "")
    )
    assert [unit.target for unit in found.units][3:] == [("eine Datei",), ("x",), ("y",)]
    assert found.units[0].target == ("Öffne %s\n",)


def test_a_long_text_and_its_line_ends_come_back() -> None:
    document = read_po("a.po", ENTRIES.encode(), ("", ""))
    long = 'sehr "lang"\tund\n' * 20
    again = read_po("a.po", document.filled({2: (long,)}), ("", ""))
    assert again.units[2].target == (long.strip("\n"),)  # as its source, it ends without a line feed
    assert again.units[2].state is UnitState.FUZZY


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
def test_gettext_takes_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_bytes(read_po("a.po", ENTRIES.encode(), ("", "")).filled({0: ("Öffne %s",), 4: ("%d",)}))
    command = ["msgfmt", "--check-format", "--use-fuzzy", "-o", str(tmp_path / "a.mo"), str(tmp_path / "a.po")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "text,said",
    [
        (HEADER + '\nmsgid "a"\nnonsense\n', "line 7"),
        (HEADER + '\nmsgid "a" "b\nmsgstr ""\n', "line "),
        ('msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-9\\n"\n', "UTF-9"),
    ],
)
def test_what_is_no_catalogue_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        read_po("a.po", text.encode(), ("", ""))
    assert str(caught.value).startswith("a.po: ")
    assert "\n" not in str(caught.value)


def test_bytes_of_another_encoding_are_refused() -> None:
    with pytest.raises(UserError, match="not valid in the encoding of its header, UTF-8"):
        read_po("a.po", ENTRIES.replace("Fertig", "Zurück").encode("latin-1"), ("", ""))


def test_python_s_documentation_is_read_whole_and_comes_back_byte_by_byte(shared_data: Path) -> None:
    states: dict[UnitState, int] = dict.fromkeys(UnitState, 0)
    with tarfile.open(shared_data / "pydocs" / "po-fr.tar.gz") as archive:
        for member in [member for member in archive if member.name.endswith(".po")][::4]:
            data = archive.extractfile(member).read()  # type: ignore[union-attr]
            document = read_po(member.name, data, ("", ""))
            assert document.filled({}) == data
            for unit in document.units:
                states[unit.state] += 1
    assert states[UnitState.TRANSLATED] > 5000
    assert states[UnitState.UNTRANSLATED] > 3000
