"""Writing direction of translated office documents: marks, their order in the schema, and formats that survive."""

import re
import zipfile
from io import BytesIO
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from headwise.localisation.reading import parse_document
from headwise.localisation.unit import Parts, plain

ARABIC = "نص"


def part(data: bytes, name: str) -> str:
    return zipfile.ZipFile(BytesIO(data)).read(name).decode()


def filled(name: str, data: bytes, target: str, translations: dict[str, Parts]) -> bytes:
    """A document with translations by source text."""
    document = parse_document(name, data, ("", target))
    assert document.filled({}) == data
    sources = {plain(unit.source): number for number, unit in enumerate(document.units)}
    return document.filled({sources[source]: parts for source, parts in translations.items()})


def word(*paragraphs: str, styles: str = "") -> bytes:
    """A Word document with these paragraphs or tables, and one more style."""
    made = docx.Document()
    for xml in reversed(paragraphs):
        made.element.body.insert(0, parse_xml(re.sub(r"^<w:\w+", rf"\g<0> {nsdecls('w')}", xml)))
    if styles:
        made.styles.element.append(parse_xml(styles.replace("<w:style", f"<w:style {nsdecls('w')}", 1)))
    file = BytesIO()
    made.save(file)
    return file.getvalue()


def body(data: bytes) -> str:
    """The first child of the body of a Word document."""
    return re.sub(
        r' xml:space="preserve"| xmlns:\w+="[^"]*"', "", part(data, "word/document.xml").partition("<w:body>")[2]
    )


FORMATTED = (
    '<w:p><w:pPr><w:pStyle w:val="Title"/>{bidi}<w:spacing w:after="0"/><w:jc w:val="right"/></w:pPr>'
    '<w:r><w:rPr><w:b/>{b}<w:i w:val="0"/>{i}<w:sz w:val="40"/>{sz}<w:u w:val="single"/>{rtl}'
    '<w:lang w:val="de-DE"/></w:rPr><w:t>{text}</w:t></w:r></w:p>'
)
LTR = {"bidi": "", "b": "", "i": "", "sz": "", "rtl": ""}
RTL = {
    "bidi": "<w:bidi/>",
    "b": "<w:bCs/>",
    "i": '<w:iCs w:val="0"/>',
    "sz": '<w:szCs w:val="40"/>',
    "rtl": "<w:rtl/>",
}


def test_word_paragraphs_and_runs_get_marks_in_the_order_of_the_schema() -> None:
    data = word(FORMATTED.format(text="A dog", **LTR), "<w:p><w:r><w:t>A cat</w:t></w:r></w:p>")
    found = body(filled("a.docx", data, "ar", {"A dog": (ARABIC,)}))
    assert found.startswith(FORMATTED.format(text=ARABIC, **RTL) + "<w:p><w:r><w:t>A cat</w:t></w:r></w:p>")


def test_word_marks_go_in_a_translation_from_right_to_left() -> None:
    data = word(FORMATTED.format(text=ARABIC, **RTL), FORMATTED.format(text="كلب", **RTL))
    found = body(filled("a.docx", data, "en", {ARABIC: ("A dog",)}))
    wanted = FORMATTED.format(text="A dog", **{**RTL, "bidi": "", "rtl": ""})
    assert found.startswith(wanted + FORMATTED.format(text="كلب", **RTL))


def test_word_marks_of_styles_are_switched_off() -> None:
    style = (
        '<w:style w:type="paragraph" w:styleId="R"><w:name w:val="R"/><w:pPr><w:bidi/></w:pPr>'
        "<w:rPr><w:rtl/></w:rPr></w:style>"
    )
    data = word(f'<w:p><w:pPr><w:pStyle w:val="R"/></w:pPr><w:r><w:t>{ARABIC}</w:t></w:r></w:p>', styles=style)
    found = body(filled("a.docx", data, "en", {ARABIC: ("A dog",)}))
    assert found.startswith(
        '<w:p><w:pPr><w:pStyle w:val="R"/><w:bidi w:val="0"/></w:pPr>'
        '<w:r><w:rPr><w:rtl w:val="0"/></w:rPr><w:t>A dog</w:t></w:r></w:p>'
    )


def test_word_letters_from_left_to_right_have_runs_without_mark() -> None:
    data = word("<w:p><w:r><w:t>A dog</w:t></w:r></w:p>")
    translated = filled("a.docx", data, "he", {"A dog": ("ב-Word 2016 (גרסה 16.0), A/B.",)})
    runs = docx.Document(BytesIO(translated)).paragraphs[0].runs
    assert [(run.text, bool(run.font.rtl)) for run in runs] == [
        ("ב-", True),
        ("Word 2016", False),
        (" (גרסה 16.0), ", True),
        ("A/B", False),
        (".", True),
    ]
    (again,) = parse_document("a.docx", translated).units
    assert plain(again.source) == "ב-Word 2016 (גרסה 16.0), A/B"  # one format


def test_word_styles_get_formats_for_right_to_left_text() -> None:
    style = (
        '<w:style w:type="character" w:styleId="S"><w:name w:val="S"/>'
        '<w:rPr><w:b/><w:sz w:val="40"/><w:szCs w:val="30"/></w:rPr></w:style>'
    )
    data = word("<w:p><w:r><w:t>A dog</w:t></w:r></w:p>", styles=style)
    wanted = '<w:rPr><w:b/><w:bCs/><w:sz w:val="40"/><w:szCs w:val="30"/></w:rPr>'
    assert wanted in part(filled("a.docx", data, "ur", {"A dog": (ARABIC,)}), "word/styles.xml")
    assert part(filled("a.docx", data, "de", {"A dog": ("Ein Hund",)}), "word/styles.xml") == part(
        data, "word/styles.xml"
    )


TABLE = (
    '<w:tbl><w:tblPr><w:tblStyle w:val="T"/>{}<w:tblW w:w="0" w:type="auto"/></w:tblPr><w:tblGrid/><w:tr><w:tc>{}'
    "</w:tc></w:tr></w:tbl>"
)


@pytest.mark.parametrize(("target", "before", "after"), [("fa", "", "<w:bidiVisual/>"), ("de", "<w:bidiVisual/>", "")])
def test_the_columns_of_word_tables_have_the_direction_of_the_translation(target: str, before: str, after: str) -> None:
    data = word(TABLE.format(before, "<w:p><w:r><w:t>A dog</w:t></w:r></w:p>"))
    found = body(filled("a.docx", data, target, {"A dog": ("1",)}))
    assert found.startswith(TABLE.format(after, "").partition("<w:tblW")[0])


def test_word_paragraphs_of_text_boxes_in_paragraphs_get_marks() -> None:
    box = "<w:pict><w:txbxContent><w:p><w:r><w:t>In the box</w:t></w:r></w:p></w:txbxContent></w:pict>"
    data = word(f"<w:p><w:r>{box}</w:r><w:r><w:t>A dog</w:t></w:r></w:p>")
    both: dict[str, Parts] = {"A dog": (ARABIC,), "In the box": (ARABIC,)}
    found: Any = docx.Document(BytesIO(filled("a.docx", data, "ar", both))).element.body[0]
    assert [one.text for one in found.iter("{*}t")] == [ARABIC, ARABIC]
    assert len(list(found.iter("{*}bidi"))) == 2


def test_word_documents_keep_their_direction_without_a_target_language() -> None:
    data = word(FORMATTED.format(text=ARABIC, **RTL))
    assert body(filled("a.docx", data, "", {ARABIC: ("A dog",)})).startswith(FORMATTED.format(text="A dog", **RTL))
