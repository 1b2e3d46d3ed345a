"""Catalogues of programs: what is a text, what a filled file looks like, and which files are rejected."""

import csv
import json
import plistlib
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from babel import Locale, localedata
from fluent.syntax import FluentParser

from headwise.documents.formats.plurals import _BY_LANGUAGE, plural_categories
from headwise.documents.formats.xcstrings import _to_json
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.not_translated import count_kinds, not_translated
from headwise.documents.reading import parse_document
from headwise.documents.unit import Code, Parts, Unit, UnitState, codes_of, plain
from headwise.errors import UserError

ANDROID = r"""<?xml version="1.0" encoding="utf-8"?>
<!-- menu --><resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2" xmlns:tools="t">
    <string name="app" translatable="false">App</string>
    <string name="hi">It\'s <b>%1$s</b>,\n   &lt;new&gt;</string>
    <string name="q">"two  blanks" </string>
    <string name="c"><![CDATA[<a href=\"x\">Read</a> it]]></string>
    <string name="x">Sent by <xliff:g id="n" example="Ann">%s</xliff:g></string>
    <string name="ref">@string/hi</string><string name="none"/>
    <string-array name="days"><item>Mon</item><item>Tue</item></string-array>
    <plurals name="files">
        <item quantity="one">%d file</item>
        <item quantity="other">%d files</item>
    </plurals>
    <color name="red">#f00</color>
</resources>
"""
RESX = """<?xml version="1.0" encoding="utf-8"?>
<root><resheader name="version"><value>2.0</value></resheader>
  <data name="Hi" xml:space="preserve"><value>Hello &amp; {0}
again</value><comment>greets</comment></data>
  <data name="Icon" type="System.Resources.ResXFileRef, System.Windows.Forms"><value>a.png</value></data>
  <data name="Pic" mimetype="application/x-microsoft.net.object.binary.base64"><value>AAEC</value></data>
  <data name=">>ok.Name" xml:space="preserve"><value>ok</value></data>
  <data name="ok.Text" type="System.String"><value>OK now</value></data>
</root>"""
QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1">
<context><name>Main</name>
    <message><source>&amp;Open %1</source><translation type="unfinished"></translation></message>
    <message numerus="yes">
        <source>%n file(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message><source>Done</source><translation>Fertig</translation></message>
    <message><source>Bad</source><translation type="unfinished">Schlecht</translation></message>
    <message><source>Old</source><translation type="vanished">Alt</translation></message>
    <message><source>New</source><translation type="unfinished"/></message>
    <message numerus="yes"><source>%n day(s)</source></message>
</context>
</TS>
"""
STRINGS = r"""/* menu = "x"; */
"hi" = "Say \"hi\"\n%1$@ \U00e9"; // comment
open="Open";
"%d" = "%d";
shown;
"""
STRINGSDICT = """<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict>
    <key>files</key>
    <dict>
        <key>NSStringLocalizedFormatKey</key><string>%#@n@</string>
        <key>n</key>
        <dict>
            <key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>
            <key>NSStringFormatValueTypeKey</key><string>d</string>
            <key>one</key>
            <string>%d file</string>
            <key>other</key>
            <string>%d files</string>
        </dict>
    </dict>
</dict></plist>
"""
XCSTRINGS = """{
  "sourceLanguage" : "en",
  "strings" : {
    "" : {

    },
    "%lld files" : {
      "localizations" : {
        "en" : {
          "variations" : {
            "plural" : {
              "one" : {
                "stringUnit" : {
                  "state" : "translated",
                  "value" : "%lld file"
                }
              },
              "other" : {
                "stringUnit" : {
                  "state" : "translated",
                  "value" : "%lld files"
                }
              }
            }
          }
        },
        "fr" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "fichiers"
          }
        }
      }
    },
    "Close" : {
      "extractionState" : "stale"
    },
    "Open {it}" : {

    },
    "Xcode" : {
      "shouldTranslate" : false
    }
  },
  "version" : "1.0"
}"""
RAILS = """# comment
en:
  hi: &hi Hello %{name}  # greets
  again: *hi
  quoted: 'It''s "here"'
  double: "a\\tb"
  on: true
  n: 5
  block: |
    First line.
    Second: line.

  folded: >-
    One
    sentence.
  files:
    one: "%{count} file"
    other: "%{count} files"
  flow: {one: a dog, other: dogs}
  date:
    formats:
      short: "%b %d"
    order: [":year", ":month"]
    days: [Mon, Tue]
  stamp: "%H:%M"
"""
CSV = '''Key,Source,Target,Note
a,"Hello, ""you""",,x
b,A dog,"",y
c,Done,Fertig,
d,5,,

e
f,"two
lines",
'''
FLUENT = """# comment
hi = Hello { $name }, <a data-l10n-name="x">read</a>
    two { "{" }lines
    .title = A title
files = You have { $n ->
    [one] a file
   *[other] { $n } files
 } here.
kind = { PLATFORM() ->
    [mac] Mac
   *[other] Other
 }
-brand =
    Long
    brand
empty = { $x }
junk here
"""
SAMPLES = {
    "strings.xml": (
        ANDROID,
        *(["It's <b>%1$s</b>,\n <new>", "two  blanks", '<a href="x">Read</a> it'],),
        {'translatable="false"': 1, "reference": 1, "text without letters": 1, "<color>": 1},
    ),
    "a.resx": (RESX, ["Hello & {0}\nagain", "OK now"], {"object or file": 2, "property of a form": 1}),
    "a.ts": (
        QT,
        ["&Open %1", "%n file(s)", "%n file(s)", "New", "%n day(s)", "%n day(s)"],
        {"vanished message": 1},
    ),
    "a.yml": (
        RAILS,
        [
            *("Hello %{name}", 'It\'s "here"', "a\tb", "First line.\nSecond: line.\n", "One sentence."),
            *("%{count} file", "%{count} files", "a dog", "dogs", "Mon", "Tue"),
        ],
        {"format": 2, "symbol": 2},
    ),
    "a.csv": (
        CSV,
        ['Hello, "you"', "A dog", "two\nlines"],
        {"text without letters": 1, "row without both columns": 1},
    ),
    "a.ftl": (
        FLUENT,
        [
            *('Hello { $name }, <a data-l10n-name="x">read</a>\ntwo { "{" }lines', "A title"),
            *("You have { $n ->\n    [one] a file\n   *[other] { $n } files\n } here.", "a file", "{ $n } files"),
            *("Mac", "Other", "Long\nbrand"),
        ],
        {"invalid entry": 1},
    ),
    "a.strings": (STRINGS, ['Say "hi"\n%1$@ \u00e9', "Open", "%d"], {}),
    "a.stringsdict": (STRINGSDICT, ["%d file", "%d files"], {"format": 1}),
    "a.xcstrings": (
        XCSTRINGS,
        ["%lld file", "%lld files", "Open {it}"],
        {"text without letters": 1, "stale string": 1, "shouldTranslate: false": 1},
    ),
}
TARGETS = {"a.xcstrings": ("", "de"), "a.yml": ("en", "de")}
SAMPLES["strings.xml"][1].extend(
    ['Sent by <xliff:g id="n" example="Ann">%s</xliff:g>', "Mon", "Tue", "%d file", "%d files"]
)


def to_do(name: str, text: str, languages: tuple[str, str] = ("", "")) -> list[Unit]:
    units = parse_document(name, text.encode(), TARGETS.get(name, languages)).units
    return [unit for unit in units if unit.state is UnitState.UNTRANSLATED]


def filled(name: str, text: str, change: Callable[[Unit], Parts], languages: tuple[str, str] = ("", "")) -> str:
    document = parse_document(name, text.encode(), TARGETS.get(name, languages))
    units = enumerate(document.units)
    return document.filled({n: change(u) for n, u in units if u.state is UnitState.UNTRANSLATED}).decode()


def shouted(unit: Unit) -> Parts:
    return tuple(part.upper() if isinstance(part, str) else part for part in with_codes(unit.source, unit.markup))


@pytest.mark.parametrize("name", SAMPLES)
def test_texts_are_found_and_the_rest_is_counted(name: str) -> None:
    text, expected, rest = SAMPLES[name]
    assert [plain(unit.source) for unit in to_do(name, text)] == expected
    assert count_kinds(not_translated(parse_document(name, text.encode(), TARGETS.get(name, ("", ""))))) == rest


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_unfilled_file_keeps_its_bytes(name: str, mark: bytes) -> None:
    data = mark + SAMPLES[name][0].replace("\n", "\r\n").encode()
    assert parse_document(name, data, TARGETS.get(name, ("", ""))).filled({}) == data


@pytest.mark.parametrize("name", SAMPLES)
def test_texts_of_a_filled_file_are_read_again(name: str) -> None:
    text, sources, _ = SAMPLES[name]
    again = parse_document(name, filled(name, text, shouted).encode(), TARGETS.get(name, ("", ""))).units
    found = [plain(unit.target or unit.source).lower() for unit in again]
    assert [source for source in sources if source.lower() not in found] == []


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("text", ["<&>\"'\\ a %d", "@string/x", "a  b\u00a0\n", " a ", "?x", "a, b] }"])
def test_any_translation_can_be_written(name: str, text: str) -> None:
    if name == "a.ftl":
        return  # with literals, see `test_fluent_translations_are_read_by_its_parser`
    found = filled(name, SAMPLES[name][0], lambda unit: (text,))
    if found.startswith("<"):
        ElementTree.fromstring(found)  # is valid XML
    units = parse_document(name, found.encode(), TARGETS.get(name, ("", ""))).units
    written = [plain(unit.target or unit.source) for unit in units]
    assert written.count(text) == len(SAMPLES[name][1])


def test_android_escapes_and_plurals_of_the_target_language() -> None:
    found = filled("strings.xml", ANDROID, lambda unit: ('l\'"é"\n',), ("en", "ru"))
    assert r"""<string name="hi">l\'\"é\"\n</string>""" in found
    assert r"""<string name="q">"l'\"é\"\n" </string>""" in found
    assert r"""<string name="c"><![CDATA[l\'\"é\"\n]]></string>""" in found
    quantities = [item.attrib["quantity"] for item in ElementTree.fromstring(found).findall("plurals/item")]
    assert sorted(quantities) == ["few", "many", "one", "other"]
    assert '\n        <item quantity="few">l' in found
    assert len(to_do("strings.xml", ANDROID, ("en", "ja"))) == len(to_do("strings.xml", ANDROID))


@pytest.mark.parametrize(
    "content",
    [
        '<![CDATA[Read <a href="x" title="two words">this</a>]]>',
        r'<![CDATA[<a href="x">It\'s \"here\"</a>]]>',
        "<![CDATA[<a href='x'>It's \"here\"</a>]]>",
        r"<![CDATA[<a href=\"x\">It\'s \\ here</a>]]>",
    ],
)
def test_android_quotes_in_cdata_are_part_of_its_html(content: str) -> None:
    text = f'<resources><string name="a">{content}</string></resources>'
    assert "".join(filled("strings.xml", text, lambda unit: unit.source)) == text


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (("Customer.Name", "Form.Location"), ["Customer.Name", "Form.Location"]),
        (("Customer.Name", ">>ok.Name", "ok.Size", "ok.Text"), ["Customer.Name", "ok.Text"]),
        ((">>ok.Type", "$this.Size", "$this.Text", "a.Size"), ["$this.Text", "a.Size"]),
        (("$this.Font", "ok.Size", "ok.Text"), ["ok.Text"]),
    ],
)
def test_names_of_forms_are_properties_only_in_forms(names: tuple[str, ...], texts: list[str]) -> None:
    items = "".join(f'<data name="{name}"><value>A text</value></data>' for name in names)
    assert [unit.key for unit in to_do("a.resx", f"<root>{items}</root>")] == texts


@pytest.mark.parametrize(
    ("text", "language", "added"),
    [
        ('{"item_one": "{{count}} item", "item_other": "{{count}} items"}', "pl", ["item_few", "item_many"]),
        ('{"a": {"item_other": "{{count}} items"}}', "pl", ["a/item_one", "a/item_few", "a/item_many"]),
        ('{"item_other":"items","item_one":"item"}', "ar", [f"item_{one}" for one in ("zero", "two", "few", "many")]),
        ('{"n": {"one": "a", "other": "b", "x": {"one": "a", "other": "b"}}}', "ja", []),
        ('{"n": {"one": "a", "other": "b"}, "l": ["c"]}', "pl", ["n/few", "n/many"]),
        ('{"sort_other": "Other", "one": "One"}', "pl", []),
        ('{"item_one": "item", "item_other": "items"}', "de", []),
        ('{"item_one": "item", "item_other": "items"}', "", []),
        ('{"a_ordinal_one": "{{count}}st", "a_ordinal_other": "{{count}}th"}', "pl", []),
        ('{"@@locale": "en", "item_one": "item", "item_other": "items"}', "pl", []),
    ],
)
def test_json_plurals_get_the_categories_of_the_target_language(text: str, language: str, added: list[str]) -> None:
    document = parse_document("en.json", text.encode(), ("en", language))
    before = [unit.key for unit in parse_document("en.json", text.encode()).units]
    assert sorted(unit.key for unit in document.units) == sorted([*before, *added])
    assert document.filled({}).decode() == text
    found = json.loads(document.filled(dict.fromkeys(range(len(document.units)), ("x",))))
    for key in added:
        value = found
        for name in key.split("/"):
            value = value[name]
        assert value == "x"


def test_new_json_entries_are_written_like_their_neighbours() -> None:
    text = '{\r\n\t"b_one" : "a \u00fc {{count}}",\r\n\t"b_other" : "bs {{count}}"\r\n}\r\n'
    document = parse_document("en.json", text.encode(), ("en", "pl"))
    found = document.filled(dict.fromkeys(range(4), ("\u015b",))).decode()
    entries = ",".join(f'\r\n\t"b_{name}" : "\u015b"' for name in ("one", "few", "many", "other"))
    assert found == "{" + entries + "\r\n}\r\n"


def test_json_plurals_that_cannot_be_completed_are_reported() -> None:
    text = '{"a_ordinal_one": "st place", "a_ordinal_other": "th place", "b": "a dog", "b_plural": "dogs"}'
    for language, n in (("pl", 1), ("de", 0)):
        kinds = count_kinds(not_translated(parse_document("en.json", text.encode(), ("en", language))))
        assert len([kind for kind in kinds if "v3" in kind]) == n and len(kinds) == n + 1


def test_qt_translations_stay_unfinished_and_get_the_forms_of_the_language() -> None:
    found = filled("a.ts", QT, lambda unit: ("x",), ("en", "ru"))
    assert '<TS version="2.1" language="ru">' in found
    assert '<source>&amp;Open %1</source><translation type="unfinished">x</translation>' in found
    assert '<source>New</source><translation type="unfinished">x</translation>' in found
    forms = [message.findall("translation/numerusform") for message in ElementTree.fromstring(found).iter("message")]
    assert [len(one) for one in forms if one] == [2, 3]  # those of the file, and those of Russian
    assert re.search(r'unfinished">\n            <numerusform>x</numerusform>\n            <numerusform>x', found)
    assert [part for part in with_codes(("%n of %L1",), "qt")] == [Code("%n"), " of ", Code("%L1")]


def test_string_tables_may_be_in_utf_16() -> None:
    data = STRINGS.encode("utf-16")
    document = parse_document("a.strings", data)
    assert document.filled({}) == data
    assert document.filled({0: ('\u00fc"',)}) == STRINGS.replace(
        r'"Say \"hi\"\n%1$@ \U00e9"', '"\u00fc\\""'
    ).encode("utf-16")  # fmt: skip


def test_stringsdict_gets_the_categories_of_the_target_language() -> None:
    found = plistlib.loads(filled("a.stringsdict", STRINGSDICT, lambda unit: ("a & b",), ("en", "pl")).encode())
    texts = {name: text for name, text in found["files"]["n"].items() if not name.startswith("NS")}
    assert texts == dict.fromkeys(["one", "few", "many", "other"], "a & b")


def test_a_string_catalogue_is_written_as_by_xcode() -> None:
    document = parse_document("a.xcstrings", XCSTRINGS.encode(), ("en", "pl"))
    numbers = [n for n, unit in enumerate(document.units) if unit.state is UnitState.UNTRANSLATED]
    found = document.filled({n: (f"t{n}",) for n in numbers}).decode()
    whole = json.loads(found)
    assert found == _to_json(whole, 0, "\n")
    plural = whole["strings"]["%lld files"]["localizations"]["pl"]["variations"]["plural"]
    assert list(plural) == ["one", "few", "many", "other"]
    assert plural["few"] == {"stringUnit": {"state": "needs_review", "value": "t2"}}
    again = parse_document("a.xcstrings", found.encode(), ("en", "pl")).units
    assert [unit.state for unit in again] == [UnitState.KEPT] + [UnitState.FUZZY] * 5
    assert count_kinds(not_translated(parse_document("a.xcstrings", XCSTRINGS.encode(), ("", "fr")))) == {
        "text without letters": 1, "stale string": 1, "shouldTranslate: false": 1,
    }  # fmt: skip


def test_rails_keeps_styles_and_renames_the_language() -> None:
    found = filled("a.yml", RAILS, lambda unit: ("x: 'y'\nz # 1\n",))
    whole = yaml.safe_load(found)["de"]
    assert {whole[name] for name in ("hi", "quoted", "double", "block", "folded")} == {"x: 'y'\nz # 1\n"}
    assert "  block: |\n    x: 'y'\n    z # 1\n\n  folded:" in found and "  on: true\n  n: 5\n" in found
    found = filled("a.yml", RAILS, lambda unit: ("it's",))
    assert "hi: &hi it's  # greets\n  again: *hi\n  quoted: 'it''s'\n  double: \"it's\"\n" in found
    assert "folded: >-\n    it's\n" in found
    assert (
        filled("a.yml", RAILS, lambda unit: ("true",)).count('"true"') == 11 - 2
    )  # "folded" and "quoted" keep their style
    document = parse_document("a.yml", RAILS.encode(), ("en", "pl"))
    found = document.filled(dict.fromkeys(range(len(document.units)), ("x",))).decode()
    assert list(yaml.safe_load(found)["pl"]["files"]) == list(yaml.safe_load(found)["pl"]["flow"])
    assert yaml.safe_load(found)["pl"]["flow"] == dict.fromkeys(["few", "many", "one", "other"], "x")


@pytest.mark.parametrize(
    ("key", "language", "written"),
    [
        ("en", "no", '"no"'), ("'en'", "no", "'no'"), ('"en"', "de", '"de"'), ("en", "NO", '"NO"'), ("no", "de", "de"),
        ("en", "on", '"on"'), ("en", "nb-NO", "nb-NO"), ("en", "y", '"y"'), ("en", "null", '"null"'),
    ],
)  # fmt: skip
def test_a_language_that_is_a_boolean_in_yaml_is_quoted(key: str, language: str, written: str) -> None:
    found = filled("no.yml", f"{key}:\n  a: Text\n  b: 'Text'\n", lambda unit: ("No",), ("en", language))
    assert found == f"{written}:\n  a: \"No\"\n  b: 'No'\n"
    assert yaml.safe_load(found) == {language: {"a": "No", "b": "No"}}


def test_tables_are_read_by_the_names_of_their_columns() -> None:
    found = filled("a.csv", CSV, lambda unit: ('a, "b"',))
    rows = list(csv.reader(found.splitlines(keepends=True)))
    assert rows[1] == ["a", 'Hello, "you"', 'a, "b"', "x"] and rows[2] == ["b", "A dog", 'a, "b"', "y"]
    assert 'b,A dog,"a, ""b""",y\nc,Done,Fertig,\nd,5,,\n\ne\nf,"two\nlines","a, ""b"""\n' in found
    by_code = "en;id;de-DE\r\nA dog;1;\r\n"
    assert filled("a.csv", by_code, lambda unit: ("x; y",), ("en", "de")) == by_code.replace("1;", '1;"x; y"')
    assert filled("a.csv", "id\tsource\ttarget\n1\tA\t", lambda unit: ("B",), ("en", "id")).endswith("1\tA\tB")


@pytest.mark.parametrize("first", ["", "sep=,\n", "sep=;\r\n", "\ufeffsep=|\n", '"sep=\t"\n', "SEP=;;;\n"])
def test_quotes_and_separators_are_those_of_spreadsheets(first: str) -> None:
    mark = next((one for one in ";|\t" if one in first), ",")
    rows = ["key,source,target,x", 'A,He said "hi" twice,,', 'B,"A, "dog" runs",,"a""b"', "C,5',,"]
    text = first + "\n".join(rows).replace(",", mark).replace(f'"A{mark}', '"A,')
    found = filled("t.csv", text, lambda unit: (plain(unit.source).upper(),), ("en", "de"))
    texts = [row[2] for row in csv.reader(found.removeprefix(first).splitlines(), delimiter=mark)]
    assert found.startswith(first) and texts == ["target", 'HE SAID "HI" TWICE', 'A, DOG" RUNS"', ""]
    assert parse_document("t.csv", text.encode()).filled({}) == text.encode()


def test_values_that_fluent_selectors_compare_stay() -> None:
    text = "-brand = Fire\n    .gender = masculine\n"
    text += "hi = { -brand.gender ->\n    [masculine] He\n   *[other] It\n }\n    .title = A title\n"
    found = filled("b.ftl", text, lambda unit: (plain(unit.source).upper(),))
    assert "-brand = FIRE\n    .gender = masculine\n" in found
    assert "[masculine] HE" in found and ".title = A TITLE" in found
    assert count_kinds(parse_document("b.ftl", text.encode()).skipped) == {"value for selectors": 1}


def test_string_tables_may_have_single_quotes() -> None:
    text = "'a' = 'it\\'s \"so\"';\n\"b\" = 'x';\n'c' = \"y'\";\n"
    found = filled("b.strings", text, lambda unit: unit.source)
    assert found == text and [unit.key for unit in to_do("b.strings", text)] == ["a", "b", "c"]
    assert [plain(unit.source) for unit in to_do("b.strings", text)] == ['it\'s "so"', "x", "y'"]


@pytest.mark.parametrize("text", ["a { b } c", "[a]\n[b]\n.c\n*d", " a\n  b\n\nc ", "}"])
def test_fluent_translations_are_read_by_its_parser(text: str) -> None:
    found = filled("a.ftl", FLUENT, lambda unit: (text, *codes_of(unit.source)))
    body: dict[str, Any] = {one.id.name: one for one in FluentParser().parse(found).body if hasattr(one, "id")}
    assert list(body) == ["hi", "files", "kind", "brand", "empty"]
    for pattern in (body["hi"].attributes[0].value, body["brand"].value):
        assert "".join(getattr(one, "value", "") or one.expression.value for one in pattern.elements) == text
    assert found.startswith("# comment\nhi = ") and found.endswith("empty = { $x }\njunk here\n")


def test_fluent_selectors_get_the_categories_of_the_target_language() -> None:
    document = parse_document("a.ftl", FLUENT.encode(), ("en", "pl"))
    found = document.filled({n: ("x", *codes_of(unit.source)) for n, unit in enumerate(document.units)}).decode()
    assert "files = x{ $n ->\n    [one] x\n    [few] x{ $n }\n    [many] x{ $n }\n   *[other] x{ $n }\n }\n" in found
    assert "    [mac] x\n   *[other] x\n }\n" in found


def test_plural_categories_are_those_of_cldr() -> None:
    for code in _BY_LANGUAGE:
        if localedata.exists(code.replace("pt-pt", "pt_PT")):
            found = Locale.parse(code, sep="-").plural_form.tags
            assert {*found, "other"} == {*_BY_LANGUAGE[code]}, code
    assert plural_categories("pl_PL") == ["one", "few", "many", "other"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.xml", "<feed><a>b</a></feed>", "a.xml: line 1: not Android resources but <feed>; --lines"),
        ("a.xml", "<resources><string>", "a.xml: line 1: invalid XML"),
        ("a.resx", "<a/>", "a.resx: line 1: not .NET resources"),
        ("a.ts", "export const a = 1;\n", "a.ts: not a file of Qt Linguist; move texts of a TypeScript module to JSON"),
        ("a.strings", '"a" = "b"\n"c" = "d";', 'a.strings: line 1: invalid string table; expected "key" = "value";'),
        ("a.strings", '"a" = "b";\n"c', "a.strings: line 2: invalid string table"),
        ("a.strings", "<?xml ?>", "a.strings: a property list, not a string table"),
        ("a.stringsdict", "<a/>", "a.stringsdict: line 1: not a property list"),
        ("a.xcstrings", "{}", "a.xcstrings: not a string catalogue of Xcode"),
        ("a.xcstrings", "{", "a.xcstrings: line 1: invalid JSON"),
        ("a.xcstrings", '{"sourceLanguage": "de", "strings": {}}', "a.xcstrings: line 1: its texts are in 'de'"),
        ("a.xcstrings", '{"sourceLanguage": "en", "strings": {"a": 1}}', "a.xcstrings: the entry 'a' is no object"),
        ("a.yml", "services:\n  web: x\nversion: 3\n", "a.yml: not a Rails catalogue: its only top-level key"),
        ("a.yml", "en:\n  a: 'b\n", "a.yml: line 3: invalid YAML (found unexpected end of stream); correct it"),
        ("a.yml", "en:\n  a: " + "[" * 5000, "a.yml: more nested keys"),
        ("a.yml", "", "a.yml: not a Rails catalogue"),
        ("a.csv", "a,b\n1,2\n", "a.csv: line 1: no columns of sources and translations; name two columns"),
        ("a.csv", 'source,target\na,b\n"c,\n', "a.csv: line 3: a quoted field without its closing quote"),
        ("a.csv", "sep=\nsource,target\n", "a.csv: line 1: 'sep=' without a separator"),
        ("a.csv", "sep=;\na;b\n", "a.csv: line 2: no columns"),
        ("a.csv", "", "a.csv: line 1: no columns"),
        ("a.ftl", "\nno entry\n", "a.ftl: line 2: not Fluent: expected an entry such as 'key = Text'"),
        ("a.ftl", "a = " + "{" * 9999, "a.ftl: more nested placeables"),
        ("a.ts", "<a/>", "a.ts: not a file of Qt Linguist"),
        ("a.ts", '<TS language="de"/>', "a.ts: line 1: its translations are in 'de', as it declares, not in 'fr'"),
    ],
)
def test_other_files_are_rejected(name: str, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_document(name, text.encode(), ("en", "fr"))
    assert str(caught.value).startswith(said) and "\n" not in str(caught.value)
