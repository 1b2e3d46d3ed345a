"""gettext's catalogues keep every byte but those of the translations that are filled in."""

import gettext
import shutil
import subprocess
import tarfile
from pathlib import Path

import polib
import pytest

from headwise.documents.formats.plurals import RULES
from headwise.documents.formats.po import read_po
from headwise.documents.unit import UnitState, plain
from headwise.errors import UserError

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


@pytest.mark.parametrize("name", ["a.po", "a.pot"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("before", ["", '#~ msgid "old"\n#~ msgstr "alt"\n\n', '#. c\nmsgid "One"\nmsgstr ""\n\n'])
def test_the_header_stays_where_it_is(tmp_path: Path, before: str, mark: str, name: str) -> None:
    header = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    text = f'{mark}{before}{header}\nmsgid "Two"\nmsgstr ""\n'
    catalogue = read_po(name, text.encode(), ("en", "de"))
    found = catalogue.filled({n: ("x",) for n, _ in enumerate(catalogue.units)}).decode()
    (tmp_path / name).write_text(found)
    entries = polib.pofile(str(tmp_path / name), check_for_duplicates=True, encoding="utf-8")
    assert [(one.msgid, one.msgstr) for one in entries if not one.obsolete] == [
        (plain(one.source), "x") for one in catalogue.units
    ]
    assert found.count('msgid ""') == 1 and found.startswith(mark + before[:4]) and found.count("\ufeff") == len(mark)


@pytest.mark.parametrize(
    ("reference", "markup"),
    [("src/a.md:7 b.md", "markdown"), ("../a.markdown", "markdown"), ("a.rst:3", "rst"), ("amd:1", "rst"), ("", "rst")],
)
def test_texts_of_markdown_files_are_markdown(reference: str, markup: str) -> None:
    text = (
        f'#. type: Plain text\n#: {reference}\nmsgid "See `a` and ``b`` [c](d.md)"\nmsgstr ""\n\nmsgid "e"\nmsgstr ""\n'
    )
    assert [unit.markup for unit in read_po("a.po", text.encode(), ("", "")).units] == [markup, ""]


def test_code_blocks_of_po4a_stay() -> None:
    text = '#. type: Fenced code block (sh)\n#: a.md:1\n#, no-wrap\nmsgid "make it\\n"\nmsgstr ""\n'
    catalogue = read_po("a.po", text.encode(), ("", ""))
    assert [(one.state, one.kept) for one in catalogue.units] == [(UnitState.KEPT, "code block")]


def test_a_byte_order_mark_stays_in_front() -> None:
    found = read_po("a.pot", '\ufeffmsgid "One"\nmsgstr ""\n'.encode(), ("en", "de")).filled({0: ("x",)}).decode()
    assert found.startswith('\ufeffmsgid ""\n') and '#, fuzzy\nmsgid "One"\nmsgstr "x"\n' in found


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


TEMPLATE = """# A title.
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: a 1\\n"
"PO-Revision-Date: 2026-01-01 00:00+0000\\n"
"Last-Translator: A <a@example.org>\\n"
"Language-Team: none\\n"
"Language: \\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=CHARSET\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"

msgid "Done"
msgstr ""

msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid "one dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""
"""


@pytest.mark.parametrize("language,forms", [("de", 2), ("ja", 1), ("ar", 6), ("pt-BR", 2), ("pl", 3)])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_template_becomes_a_catalogue_of_the_target_language(
    language: str, forms: int, end: str, tmp_path: Path
) -> None:
    text = TEMPLATE.replace("\n", end)
    document = read_po("a.pot", text.encode(), ("en", language))
    assert document.filled({}).decode() == text
    assert len(document.units) == 1 + 2 * forms
    found = document.filled({n: ("%d \u00fc",) for n in range(1 + forms)}).decode()
    (tmp_path / "a.po").write_bytes(found.encode())
    read = polib.pofile(str(tmp_path / "a.po"), check_for_duplicates=True)
    assert read.metadata["Language"] == language.replace("-", "_")
    assert read.metadata["Plural-Forms"].startswith(f"nplurals={forms};")
    assert read.metadata["Content-Type"] == "text/plain; charset=UTF-8"
    assert not read.metadata_is_fuzzy
    assert [len(entry.msgstr_plural) for entry in read] == [0, forms, forms]
    assert [entry.fuzzy for entry in read] == [True, True, False]
    if shutil.which("msgfmt"):
        command = ["msgfmt", "--check-header", "--check-format", "-o", str(tmp_path / "a.mo"), str(tmp_path / "a.po")]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


def test_a_template_without_a_header_gets_one() -> None:
    found = read_po("a.pot", b'msgid "Done"\nmsgstr ""\n', ("en", "de")).filled({0: ("Zur\u00fcck",)}).decode()
    assert found.startswith('msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n')
    assert '"Language: de\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n#, fuzzy\nmsgid "Done"' in found


def test_a_charset_that_lacks_a_character_becomes_utf_8() -> None:
    text = ENTRIES.replace("UTF-8", "iso-8859-1")
    found = read_po("a.po", text.encode("latin-1"), ("", "")).filled({0: ("\u017durn\u00e1l %s",)})
    assert b"charset=UTF-8" in found
    assert read_po("a.po", found, ("", "")).units[0].target == ("\u017durn\u00e1l %s\n",)


def test_indented_files_are_read_and_filled() -> None:
    text = '  #, python-format\n  msgid\t"A %s"\n  \t"B"\n  msgstr\t""\n\n  msgid "C"\n  msgstr "D"\n'
    document = read_po("a.po", text.encode(), ("", ""))
    assert document.filled({}).decode() == text
    assert document.filled({0: ("x %s",)}).decode() == text.replace("#,", "#, fuzzy,").replace(
        '  msgstr\t""', 'msgstr "x %s"'
    )


def test_plural_rules_are_those_of_unicode() -> None:
    pytest.importorskip("babel")
    from babel import Locale, UnknownLocaleError

    n_checked = 0
    for rule, languages in RULES.items():
        expression = rule.partition("plural=")[2].rstrip(";")
        form_of = gettext.c2py(expression)
        forms = [form_of(n) for n in range(1000)]
        assert max(forms) + 1 == int(rule[9])
        for language in languages.split():
            try:
                unicode = [str(Locale.parse(language).plural_form(n)) for n in range(1000)]
            except UnknownLocaleError:
                continue
            assert len(set(zip(forms, unicode, strict=True))) == len(set(forms)) == len(set(unicode)), language
            n_checked += 1
    assert n_checked > 100
