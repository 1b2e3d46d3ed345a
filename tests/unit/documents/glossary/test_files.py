"""Glossaries from files of all kinds, and what is wrong with some."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwise.documents.glossary.files import load_glossary, read_glossary
from headwise.errors import UserError

OLD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><text><body>
<termEntry id="1"><descrip type="subjectField">animals</descrip>
 <langSet xml:lang="en-US"><tig><term>dog</term></tig><tig><term>hound</term></tig></langSet>
 <langSet xml:lang="de"><tig><term>K&#246;ter</term>
 <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
 <ntig><termGrp><term>Hund</term></termGrp></ntig></langSet></termEntry>
<termEntry id="2"><langSet xml:lang="en"><tig><term>only here</term></tig></langSet></termEntry>
</body></text></martif>
"""
NEW = """<?xml version="1.0" encoding="UTF-8"?>
<tbx style="{style}" type="TBX-Basic" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
     xmlns:basic="http://www.tbxinfo.net/ns/basic" xmlns:min="http://www.tbxinfo.net/ns/min"><text><body>
<conceptEntry id="c1">
 <langSec xml:lang="en"><termSec><term>dog</term></termSec><termSec><term>hound</term></termSec></langSec>
 <langSec xml:lang="de"><termSec><term>Köter</term>{status}</termSec><termSec><term>Hund</term></termSec></langSec>
</conceptEntry></body></text></tbx>
"""
DCA = NEW.format(style="dca", status='<termNote type="administrativeStatus">supersededTerm-admn-sts</termNote>')
DCT = NEW.format(style="dct", status="<min:administrativeStatus>deprecatedTerm-admn-sts</min:administrativeStatus>")
FILES = {
    "a.tsv": "\ufeff# of animals\n\ndog\tHund\tnoun\nhound \t Hund\n",
    "b.csv": 'note,de,en\n,Hund,dog\n"a, b",Hund,hound\n,,\n',
    "c.csv": "term,translation\ndog,Hund\nhound,Hund\n",
    "d.tbx": OLD,
    "e.tbx": DCA,
    "f.tbx": DCT,
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_has_the_same_terms(tmp_path: Path, name: str) -> None:
    languages = ("en", "de") if name in ("b.csv", "f.tbx") else ("", "")
    terms = read_glossary(write(tmp_path, name, FILES[name]), languages)
    assert [(term.source, term.target) for term in terms] == [("dog", "Hund"), ("hound", "Hund")]
    assert all(str(tmp_path / name) in term.where and "line" in term.where for term in terms)


def test_the_other_direction_of_a_tbx(tmp_path: Path) -> None:
    """Also a deprecated term is understood, though none is written."""
    terms = read_glossary(write(tmp_path, "a.tbx", DCT), ("de", "en"))
    assert [(term.source, term.target) for term in terms] == [("Köter", "dog"), ("Hund", "dog")]


def test_one_language_of_two_decides_the_direction(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tbx", DCT)
    for languages, target in {("de", ""): "dog", ("", "en-GB"): "dog", ("", ""): "Hund", ("eng", ""): "Hund"}.items():
        assert read_glossary(path, languages)[0].target == target


CELLS = {"en": "dog", "en-US": "dog", "ENG": "dog", "de": "Hund", "de_DE": "Hund", "fr": "chien", "note": "-"}
CELLS |= {"source": "dog", "translation": "Hund"}


@given(
    columns=st.lists(st.sampled_from(list(CELLS)), min_size=2, max_size=4, unique_by=CELLS.__getitem__),
    separator=st.sampled_from(",\t"),
)
def test_columns_are_those_of_the_languages(columns: list[str], separator: str) -> None:
    """Of a table in any order, also with other columns; never those of other languages."""
    assume(separator == "," or "note" not in columns[:2])  # lines of terms need no header
    assume(separator == "," or len({*columns[:2]} & {"source", "translation"}) != 1)
    with TemporaryDirectory() as folder:
        rows = (separator.join(row) for row in (columns, [CELLS[name] for name in columns]))
        path = write(Path(folder), f"a.{'csv' if separator == ',' else 'tsv'}", "\n".join(rows))
        there = [CELLS[name] for name in columns]
        try:
            (term,) = read_glossary(path, ("en", "de"))
        except UserError as error:
            assert re.search(r"line 1: no column (in '(en|de)'|of )", str(error))
            assert not {"dog", "Hund"} <= {*there}
        else:
            known = {"dog": term.source, "Hund": term.target}
            assert all(found == wanted for wanted, found in known.items() if wanted in there)
            assert "chien" not in (term.source, term.target)


def test_what_stays_as_it_is_has_one_column(tmp_path: Path) -> None:
    terms = read_glossary(write(tmp_path, "names.txt", "Foo Bar\nHund\tHund\n"))
    assert [(term.source, term.target, term.is_kept) for term in terms] == [
        ("Foo Bar", "Foo Bar", True),
        ("Hund", "Hund", True),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "dog|dogs\tHund\ncat | cats\tKatze|Katzen\nA|B\n"),
        ("b.csv", "source,target\ndog|dogs,Hund\ncat|cats,Katze|Katzen\nA|B,A|B\n"),
    ],
)
def test_listed_forms_are_terms(tmp_path: Path, name: str, text: str) -> None:
    """With the translation of all forms, or each with its own."""
    glossary = load_glossary(write(tmp_path, name, text))
    found = [(match.term.source, match.term.target) for match in glossary.matches("Dogs, a dog, cats, a cat, A and B")]
    words = [("dogs", "Hund"), ("dog", "Hund"), ("cats", "Katzen"), ("cat", "Katze"), ("A", "A"), ("B", "B")]
    assert found == words


@pytest.mark.parametrize("line", ["dog|dogs\tHund|Hunde|Hunden", "dog\tHund|Hunde", "dog|\tHund"])
def test_forms_without_a_translation_each(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match=r"a\.tsv: line 2: '.*' has \d forms and"):
        read_glossary(write(tmp_path, "a.tsv", f"a\tb\n{line}\n"))


def test_glossaries_are_taken_as_they_come(tmp_path: Path) -> None:
    there = load_glossary([("dog", "Hund")])
    assert load_glossary(there) is there
    assert load_glossary(str(write(tmp_path, "a.tsv", "dog\tHund\n"))).terms[0].target == "Hund"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "dog\t\n", "line 1: source or target is empty"),
        ("a.tsv", "# nothing\n", "no terms found"),
        ("a.csv", "dog\n", "line 1: expected a header with two columns"),
        ("a.csv", "source,target\ndog,\n", "line 2: source or target is empty"),
        ("a.tbx", "<martif>", "invalid XML"),
        ("a.tbx", OLD.replace('SYSTEM "TBXBasiccoreStructV02.dtd"', "[<!ENTITY x 'y'>]"), "replace 'x' by its text"),
        ("a.tbx", OLD.replace('<langSet xml:lang="en">', '<langSet xml:lang="fr">'), "which languages\\?"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        read_glossary(write(tmp_path, name, text))
    assert str(tmp_path / name) in str(raised.value)


def test_a_language_that_is_not_there_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no.*'fr'.*en-US"):
        read_glossary(write(tmp_path, "a.tbx", OLD), ("en", "fr"))
    (tmp_path / "b.tsv").write_bytes(b"dog\tHund\nk\xf6ter\tx\n")
    with pytest.raises(UserError, match=r"b\.tsv: line 2: not UTF-8"):
        read_glossary(tmp_path / "b.tsv")
    with pytest.raises(UserError, match=r"none\.tsv"):
        read_glossary(tmp_path / "none.tsv")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_terms_are_cut_at_ends_of_lines_alone(tmp_path: Path, end: str) -> None:
    for i, one in enumerate("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"):
        path = tmp_path / f"{i}.tsv"
        path.write_bytes(f"big{one}dog\tHund{end}a{one}name{end}# note{end}cat\tKatze".encode())
        terms = read_glossary(path, ("", ""))
        assert [term.source for term in terms] == [f"big{one}dog", f"a{one}name", "cat"]
        assert terms[-1].where.endswith("line 4")
