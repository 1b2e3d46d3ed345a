"""XML whose bytes are kept, and memories and XLIFF in it."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.documents.formats import tmx, xliff
from headwise.documents.markup.markup import CONTROLS, Source, to_xml, with_attributes
from headwise.documents.reading import parse_document, read_document
from headwise.documents.unit import Code, Parts, plain, without_inline_codes
from headwise.errors import UserError

TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<!-- a <comment> -->
<tmx version="1.4"><header srclang="en" segtype="sentence"/><body>
  <tu tuid="1"><note>n</note>
    <tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b&gt;</bpt>OK<ept i="1">&lt;/b&gt;</ept> &amp; wait</seg></tuv>
    <tuv xml:lang="de"><seg>OK dr\u00fccken &#38; warten</seg></tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>A dog</seg></tuv>
  </tu>
  <tu><tuv lang="en"><seg><![CDATA[2 < 3]]></seg></tuv><tuv lang="de"><seg/></tuv></tu>
</body></tmx>
"""
OLD = """<?xml version='1.0' encoding='utf-8'?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" original="a"><body>
  <group translate="no"><trans-unit id="0"><source>kept</source></trans-unit></group>
  <trans-unit id="1">
    <source>The <g id="1">black</g> dog<x id="2"/></source>
  </trans-unit>
  <trans-unit id="2"><source>one</source><target state="new" xml:lang="de"/></trans-unit>
  <trans-unit id="3"><source>two</source><target state='needs-review-translation'>zwei</target>
    <alt-trans><source>x</source><target>y</target></alt-trans></trans-unit>
  <trans-unit id="4" approved="yes"><source>three</source><target>drei</target></trans-unit>
</body></file></xliff>
"""
NEW = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f">
  <unit id="1"><segment id="s1"><source>A <pc id="1">dog</pc><ph id="2"/></source></segment>
    <ignorable><source> </source></ignorable>
    <segment state="final"><source>Done</source><target>Fertig</target></segment></unit>
  <unit id="2" translate="no"><segment><source>kept</source></segment></unit>
</file></xliff>
"""


def states(document: tmx.TranslationMemory | xliff.Exchange) -> list[str]:
    return [unit.state.name for unit in document.units]


def test_a_memory_is_read_with_its_tags_entities_and_sections() -> None:
    document = tmx.read_tmx("a.tmx", TMX.encode(), ("", ""))
    assert document.languages == ("en", "de")
    assert states(document) == ["TRANSLATED", "UNTRANSLATED", "UNTRANSLATED"]
    assert without_inline_codes(document.units[0].source) == "Press OK & wait"
    assert [part.text for part in document.units[0].source if isinstance(part, Code)] == [
        '<bpt i="1">&lt;b&gt;</bpt>',
        '<ept i="1">&lt;/b&gt;</ept>',
    ]
    assert (plain(document.units[0].target), plain(document.units[2].source)) == ("OK drücken & warten", "2 < 3")


def test_a_memory_is_filled_in_place() -> None:
    found = tmx.read_tmx("a.tmx", TMX.encode(), ("", "")).filled({1: ("Ein <Hund>",), 2: ("2 < 3",)}).decode()
    expected = TMX.replace(
        "<seg>A dog</seg></tuv>",
        '<seg>A dog</seg></tuv><tuv xml:lang="de" creationid="MT!"><seg>Ein &lt;Hund&gt;</seg></tuv>',
    ).replace('<tuv lang="de"><seg/>', '<tuv lang="de" creationid="MT!"><seg>2 &lt; 3</seg>')
    assert found == expected
    assert states(tmx.read_tmx("a.tmx", found.encode(), ("", ""))) == ["TRANSLATED"] * 3


def test_languages_are_asked_for_where_a_memory_leaves_them_open() -> None:
    three = TMX.replace('lang="de"><seg/>', 'lang="fr"><seg>x</seg>')
    with pytest.raises(UserError, match=r"which languages.* en-US, de, en, fr; add --languages"):
        tmx.read_tmx("a.tmx", three.encode(), ("", ""))
    assert states(tmx.read_tmx("a.tmx", three.encode(), ("en", "fr")))[2] == "TRANSLATED"
    with pytest.raises(UserError, match="no text in 'it'"):
        tmx.read_tmx("a.tmx", TMX.encode(), ("it", "de"))


def test_xliff_1_is_filled_and_marked_for_review() -> None:
    document = xliff.read_xliff("a.xlf", OLD.encode(), ("", "de"))
    assert states(document) == ["KEPT", "UNTRANSLATED", "UNTRANSLATED", "FUZZY", "TRANSLATED"]
    source = document.units[1].source
    assert plain(source) == 'The <g id="1">black</g> dog<x id="2"/>'
    found = document.filled({1: ("Der ", *source[1:4], " Hund", source[5]), 2: ("eins",)}).decode()
    marked = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
    target = f'\n    <target {marked}>Der <g id="1">black</g> Hund<x id="2"/></target>'
    assert found == OLD.replace('</g> dog<x id="2"/></source>', f'</g> dog<x id="2"/></source>{target}').replace(
        '<target state="new" xml:lang="de"/>',
        '<target state="needs-review-translation" xml:lang="de" state-qualifier="mt-suggestion">eins</target>',
    ).replace('original="a"', 'original="a" target-language="de"')
    assert states(xliff.read_xliff("a.xlf", found.encode(), ("", "")))[1:3] == ["FUZZY", "FUZZY"]


def test_xliff_2_is_filled_and_marked() -> None:
    document = xliff.read_xliff("a.xlf", NEW.encode(), ("", ""))
    assert states(document) == ["UNTRANSLATED", "TRANSLATED", "KEPT"]
    found = document.filled({0: ("Ein ", *document.units[0].source[1:])}).decode()
    assert '<segment id="s1" state="translated" subState="headwise:machine"><source>' in found
    assert '<target>Ein <pc id="1">dog</pc><ph id="2"/></target></segment>' in found
    for name, state in (("headwise", "FUZZY"), ("other", "TRANSLATED")):
        read = xliff.read_xliff("a.xlf", found.replace("headwise", name).encode(), ("", ""))
        assert states(read)[0] == state
    with pytest.raises(UserError, match=r"line 1: its translations are in 'de', .* not in 'fr'"):
        parse_document("a.xlf", NEW.encode(), ("", "fr"))


@pytest.mark.parametrize("text,read", [(TMX, tmx.read_tmx), (OLD, xliff.read_xliff), (NEW, xliff.read_xliff)])
@pytest.mark.parametrize("mark,encoding", [(b"", "utf-8"), (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le")])
def test_nothing_filled_is_nothing_changed(text: str, read: Any, mark: bytes, encoding: str) -> None:
    data = mark + text.replace("encoding='utf-8'", "").replace("\n", "\r\n").encode(encoding)
    assert read("a", data, ("", "")).filled({}) == data


def test_a_file_is_filled_in_its_own_encoding() -> None:
    data = ("<?xml version='1.0' encoding='iso-8859-1'?>" + OLD.partition("?>")[2]).encode("latin-1")
    found = xliff.read_xliff("a.xlf", data, ("", "de")).filled({2: ("schön \u2013 ja",)})
    assert "schön &#8211; ja".encode("latin-1") in found


BOMB = '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x "y">]><tmx>&x;</tmx>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx>&x;</tmx>'


@pytest.mark.parametrize(
    "text,said",
    [
        (BOMB, "line 1: entity declarations are not supported; replace 'x'"),
        (OUTSIDE, "line 1: entity declarations are not supported; replace 'x'"),
        ("<tmx>\n<body></tmx>", "line 2: invalid XML"),
        ("", "line 1: invalid XML"),
        ("<a/>", "line 1: not a TMX file"),
        ("<tmx>" + "<a>" * 600 + "</a>" * 600 + "</tmx>", "nested elements"),
    ],
)
def test_what_is_no_memory_is_refused_in_a_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        tmx.read_tmx("a.tmx", text.encode(), ("", ""))


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc"))) | st.just(Code('<x id="1"/>', inline=True))))
def test_parts_come_back_from_what_is_written(parts: list[str | Code]) -> None:
    source = Source("a", f"<a>{to_xml(tuple(parts))}</a>".encode())
    found: Parts = source.parts(source.root, lambda _: False)
    assert plain(found) == CONTROLS.sub("", plain(tuple(parts)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tmx", TMX),
        (
            "a.xlf",
            '<xliff><file target-language="fr"><trans-unit id="1"><source>A</source></trans-unit></file></xliff>',
        ),
        (
            "a.ts",
            '<TS><context><message><source>A dog</source><translation type="unfinished"/></message></context></TS>',
        ),
        ("a.xml", '<resources><string name="a">A</string><string name="b"><![CDATA[<b>B</b>]]></string></resources>'),
        ("a.resx", '<root><data name="a"><value>A dog</value></data></root>'),
        ("a.xhtml", '<html><body><p title="A cat">A <b>dog</b></p></body></html>'),
    ],
)
def test_characters_that_xml_cannot_express_are_left_out(name: str, text: str) -> None:
    document = parse_document(name, text.encode(), ("en", "fr"))
    found = document.filled(dict.fromkeys(range(len(document.units)), ("a\0b\x0bc\ufffed",)))
    assert found.count(b"abcd") == len(document.units) and ElementTree.fromstring(found) is not None


def test_an_attribute_is_put_in_place_of_another() -> None:
    assert with_attributes("<a b='1' c=\"2\"/>", b='"<') == '<a b="&quot;&lt;" c="2"/>'


def test_memories_of_four_programs_are_read_whole(shared_data: Path) -> None:
    documents = [read_document(path) for path in sorted((shared_data / "tmx").glob("84000-*.tmx"))]
    units = [unit for document in documents for unit in document.units]
    assert (len(documents), len(units)) == (9, 884)
    assert sum(bool(plain(unit.source) and without_inline_codes(unit.target).strip()) for unit in units) == 877
