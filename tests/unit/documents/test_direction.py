"""Writing direction of translated office documents: marks, their order in the schema, and formats that survive."""

import re
import zipfile
from collections import Counter
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from openpyxl.styles import Alignment, Font

from headwise.documents.formats.open_document_direction import DocumentStyles
from headwise.documents.reading import parse_document
from headwise.documents.unit import Parts, plain

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
    '<w:p><w:pPr><w:pStyle w:val="Title"/><w:autoSpaceDN/>{bidi}<w:adjustRightInd/><w:jc w:val="right"/></w:pPr>'
    '<w:r><w:rPr><w:b/>{b}<w:i w:val="0"/>{i}<w:sz w:val="40"/>{sz}<w:vertAlign w:val="baseline"/>{rtl}'
    '<w:cs/><w:lang w:val="de-DE"/></w:rPr><w:t>{text}</w:t></w:r></w:p>'
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
    assert plain(again.source) == "ב-Word 2016 (גרסה 16.0), A/B."  # one format


def test_word_styles_get_formats_for_right_to_left_text() -> None:
    style = (
        '<w:style w:type="character" w:styleId="S"><w:name w:val="S"/>'
        '<w:rPr><w:b/><w:sz w:val="40"/><w:szCs w:val="30"/>'
        '<w:rPrChange w:id="1" w:author="A"><w:rPr><w:i/></w:rPr></w:rPrChange></w:rPr></w:style>'
    )
    data = word("<w:p><w:r><w:t>A dog</w:t></w:r></w:p>", styles=style)
    wanted = (
        '<w:rPr><w:b/><w:bCs/><w:sz w:val="40"/><w:szCs w:val="30"/>'
        '<w:rPrChange w:id="1" w:author="A"><w:rPr><w:i/></w:rPr></w:rPrChange></w:rPr>'
    )
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


def slides(*changes: tuple[str, str, str]) -> bytes:
    """A presentation with a title, a text, a text box and a table; `changes` replace text in its files."""
    made: Any = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[1])
    slide.shapes.title.text = "A title"
    slide.placeholders[1].text = "A dog"
    slide.placeholders[1].text_frame.add_paragraph().text = "12"
    slide.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "In a box"
    slide.shapes.add_table(1, 1, 0, 0, 9, 9).table.cell(0, 0).text = "In a table"
    file = BytesIO()
    made.save(file)
    for name, old, new in changes:
        file = with_change(file, name, old, new)
    return file.getvalue()


def with_change(file: BytesIO, name: str, old: str, new: str) -> BytesIO:
    changed = BytesIO()
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(changed, "w") as after:
        for one in before.namelist():
            content = before.read(one).decode(errors="surrogateescape")
            assert one != name or old in content
            content = content.replace(old, new, 1) if one == name else content
            after.writestr(one, content.encode(errors="surrogateescape"))
    return changed


SLIDE, MASTER = "ppt/slides/slide1.xml", "ppt/slideMasters/slideMaster1.xml"
LAYOUT, PRESENTATION = "ppt/slideLayouts/slideLayout2.xml", "ppt/presentation.xml"


def paragraph_of(data: bytes, text: str) -> str:
    """The XML of the paragraph with this text on the first slide."""
    (found,) = (one for one in re.findall(r"<a:p>.*?</a:p>", part(data, SLIDE)) if f">{text}<" in one)
    return found


@pytest.mark.parametrize(
    ("text", "old", "properties"),
    [
        ("A title", "", 'rtl="1"'),  # centred by the master slide
        ("A dog", "", 'rtl="1" algn="r"'),
        ("A dog", '<a:pPr algn="r" lvl="1"/>', 'algn="l" lvl="1" rtl="1"'),
        ("A dog", '<a:pPr algn="just"/>', 'algn="just" rtl="1"'),
        ("In a box", "", 'rtl="1" algn="r"'),
        ("In a table", "", 'rtl="1" algn="r"'),
    ],
)
def test_paragraphs_of_slides_get_direction_and_alignment(text: str, old: str, properties: str) -> None:
    run = f"<a:r><a:rPr b=\"1\"><a:latin typeface='A'/></a:rPr><a:t>{text}</a:t></a:r>"
    data = slides((SLIDE, f"<a:r><a:t>{text}</a:t></a:r>", old + run))
    found = filled("a.pptx", data, "ar-EG", {text: (ARABIC,)})
    formatted = run.replace('b="1"', 'b="1" lang="ar-EG"').replace(text, ARABIC)
    assert paragraph_of(found, ARABIC) == f"<a:p><a:pPr {properties}/>{formatted}</a:p>"
    assert paragraph_of(found, "12") == paragraph_of(data, "12")


STYLE, RIGHT = "<a:lstStyle/>", '<a:lstStyle><a:lvl1pPr algn="r" rtl="0"/></a:lstStyle>'
BODY = '<p:bodyStyle><a:lvl1pPr marL="342900" indent="-342900" algn="{}"'
DEFAULT = '<a:lvl1pPr marL="0" algn="{}"'


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("A title", (SLIDE, STYLE, RIGHT)),
        ("A title", (LAYOUT, STYLE, RIGHT)),
        ("A title", (MASTER, STYLE, RIGHT)),
        ("A dog", (MASTER, BODY.format("l"), BODY.format("r"))),
        ("In a box", (PRESENTATION, DEFAULT.format("l"), DEFAULT.format("r"))),
    ],
)
def test_paragraphs_of_slides_inherit_alignment(text: str, change: tuple[str, str, str]) -> None:
    found = filled("a.pptx", slides(change), "he", {text: (ARABIC,)})
    assert '<a:p><a:pPr rtl="1" algn="l"/>' in paragraph_of(found, ARABIC)


def test_slides_are_translated_from_right_to_left() -> None:
    old = '<a:pPr algn="r" rtl="1"/><a:r><a:rPr lang="he-IL"/><a:t>'
    data = slides((SLIDE, "<a:r><a:t>A dog", f"{old}כלב"), (SLIDE, "<a:tblPr", '<a:tblPr rtl="1"'))
    found = filled("a.pptx", data, "en", {"כלב": ("A dog",)})
    new = '<a:pPr algn="l" rtl="0"/><a:r><a:rPr lang="en"/><a:t>'
    assert paragraph_of(found, "A dog").startswith(f"<a:p>{new}")
    assert '<a:tblPr rtl="0"' in part(found, SLIDE)


def test_the_columns_of_tables_on_slides_have_the_direction_of_the_translation() -> None:
    found = filled("a.pptx", slides(), "fa", {"A dog": (ARABIC,)})
    assert '<a:tblPr firstRow="1" bandRow="1" rtl="1">' in part(found, SLIDE)
    assert part(filled("a.pptx", slides(), "de", {"A dog": ("Hund",)}), SLIDE).count("rtl=") == 0


@pytest.mark.parametrize(("target", "before", "after"), [("ar", False, True), ("de", True, False), ("", True, True)])
def test_the_columns_of_sheets_have_the_direction_of_the_translation(target: str, before: bool, after: bool) -> None:
    made = openpyxl.Workbook()
    for sheet in (made.worksheets[0], made.create_sheet()):
        sheet.sheet_view.rightToLeft = before
    cell = made.worksheets[0]["A1"]
    cell.value, cell.font, cell.alignment = "A dog", Font(bold=True), Alignment(horizontal="right")
    file = BytesIO()
    made.save(file)
    found = openpyxl.load_workbook(BytesIO(filled("a.xlsx", file.getvalue(), target, {"A dog": (ARABIC,)})))
    assert [sheet.sheet_view.rightToLeft for sheet in found.worksheets] == [after, after]
    cell = found.worksheets[0]["A1"]
    assert (cell.value, cell.font.b, cell.alignment.horizontal) == (ARABIC, True, "right")


ODF = "urn:oasis:names:tc:opendocument:xmlns:"
ROOT = (
    f'<office:document-content xmlns:office="{ODF}office:1.0" xmlns:style="{ODF}style:1.0" xmlns:text="{ODF}text:1.0" '
    f'xmlns:table="{ODF}table:1.0" xmlns:draw="{ODF}drawing:1.0" xmlns:fo="{ODF}xsl-fo-compatible:1.0" '
    f'xmlns:presentation="{ODF}presentation:1.0">'
)
STYLES = (
    f'{ROOT}<office:styles><style:default-style style:family="paragraph"><style:paragraph-properties '
    'style:writing-mode="page"/></style:default-style><style:style style:name="Middle" style:family="{family}">'
    '<style:paragraph-properties fo:text-align="{align}" style:writing-mode="{mode}"/></style:style></office:styles>'
    "</office:document-content>"
)
PARAGRAPH_STYLE = '<style:style style:name="{}" style:family="paragraph"{}>'


def open_document(
    text: str, automatic: str = "", family: str = "paragraph", align: str = "center", mode: str = ""
) -> bytes:
    """An OpenDocument file with this content and these automatic styles."""
    body = f"<office:body><office:text>{text}</office:text></office:body></office:document-content>"
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("content.xml", ROOT + automatic + body)
        made.writestr("styles.xml", STYLES.format(family=family, align=align, mode=mode or "lr-tb"))
    return file.getvalue()


def own_style(data: bytes) -> str:
    """The style of the translated paragraph."""
    content = part(data, "content.xml")
    ElementTree.fromstring(content)
    (name,) = re.findall(rf'<text:p text:style-name="(\w+)">(?:<text:span[^>]*>)?{ARABIC}', content)
    (style,) = re.findall(rf'<style:style [^>]*style:name="{name}".*?</style:style>', content)
    return style.replace(f'"{name}"', '""')


RTL_MODE, RIGHT_ALIGN = 'style:writing-mode="rl-tb"', 'fo:text-align="right"'


@pytest.mark.parametrize(
    ("automatic", "name", "properties"),
    [
        ("", "", f"<style:paragraph-properties {RIGHT_ALIGN} {RTL_MODE}/>"),
        ("", "Standard", f"<style:paragraph-properties {RIGHT_ALIGN} {RTL_MODE}/>"),
        ("<office:automatic-styles/>", "Middle", f"<style:paragraph-properties {RTL_MODE}/>"),
    ],
)
def test_paragraphs_with_shared_styles_get_an_automatic_style(automatic: str, name: str, properties: str) -> None:
    own = f' text:style-name="{name}"' if name else ""
    data = open_document(f"<text:p{own}>A dog</text:p><text:p{own}>12</text:p>", automatic)
    found = filled("a.odt", data, "ar", {"A dog": (ARABIC,)})
    parent = f' style:parent-style-name="{name}"' if name else ""
    opening = PARAGRAPH_STYLE.format("", "").replace("<style:style", f"<style:style{parent}")
    assert own_style(found) == f"{opening}{properties}</style:style>"
    assert f"<text:p{own}>12</text:p>" in part(found, "content.xml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('fo:text-align="start"', f"{RIGHT_ALIGN} {RTL_MODE}"),
        ('fo:text-align="end"', f'fo:text-align="left" {RTL_MODE}'),
        ('fo:text-align="justify"', f'fo:text-align="justify" {RTL_MODE}'),
        ('style:writing-mode="lr-tb"', f"{RTL_MODE} {RIGHT_ALIGN}"),
    ],
)
def test_paragraphs_with_automatic_styles_get_a_copy(old: str, new: str) -> None:
    style = PARAGRAPH_STYLE.format("P1", ' style:list-style-name="L1"') + (
        "<style:paragraph-properties {}><style:tab-stops/></style:paragraph-properties>"
        '<style:text-properties fo:font-weight="bold"{}/></style:style>'
    )
    automatic = f"<office:automatic-styles>{style.format(old, '')}</office:automatic-styles>"
    data = open_document('<text:p text:style-name="P1">A dog</text:p>', automatic)
    found = filled("a.odt", data, "ar", {"A dog": (ARABIC,)})
    wanted = style.format("PROPERTIES", ' style:font-weight-complex="bold"').replace('"P1"', '""')
    before, behind = wanted.split("PROPERTIES")
    made = own_style(found)
    assert made.startswith(before)
    assert made.endswith(behind)
    assert sorted(made.removeprefix(before).removesuffix(behind).split()) == sorted(new.split())


def test_each_style_of_a_long_chain_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the time would grow with the square of the number of styles."""
    read: list[str] = []
    own = DocumentStyles._own
    monkeypatch.setattr(
        DocumentStyles, "_own", lambda self, family, name: [read.append(name), own(self, family, name)][1]
    )
    chain = [PARAGRAPH_STYLE.format(f"P{n}", f' style:parent-style-name="P{n - 1}"') for n in range(1, 300)]
    circle = PARAGRAPH_STYLE.format("A", ' style:parent-style-name="A"')
    end = f'{PARAGRAPH_STYLE.format("P0", "")}<style:paragraph-properties fo:text-align="end"/>'
    styles = "".join(f"{style}</style:style>" for style in (end, *chain, circle))
    names = [*(f"P{n}" for n in range(300)), "A"]
    text = "".join(f'<text:p text:style-name="{name}">Dog {name}.</text:p>' for name in names)
    data = open_document(text, f"<office:automatic-styles>{styles}</office:automatic-styles>")
    found = filled("a.odt", data, "ar", {f"Dog {name}.": (ARABIC,) for name in names})
    assert part(found, "content.xml").count('fo:text-align="left"') == 300
    assert Counter(name for name in read if name).most_common(1)[0][1] == 1


def test_paragraphs_of_shapes_inherit_alignment() -> None:
    box = "<draw:text-box><text:p>A dog</text:p></draw:text-box>"
    frame = f'<draw:frame presentation:style-name="Middle">{box}</draw:frame>'
    data = open_document(frame, family="presentation")
    found = own_style(filled("a.odp", data, "he", {"A dog": (ARABIC,)}))
    assert "text-align" not in found
    assert RTL_MODE in found


def test_open_documents_are_translated_from_right_to_left() -> None:
    data = open_document('<text:p text:style-name="Middle">כלב</text:p>', align="end", mode="rl-tb")
    found = own_style(filled("a.odt", data, "en", {"כלב": (ARABIC,)}))
    assert '<style:paragraph-properties fo:text-align="left" style:writing-mode="lr-tb"/>' in found


@pytest.mark.parametrize(("target", "suffix"), [("ar", "-complex"), ("hi", "-complex"), ("ja", "-asian"), ("de", "")])
def test_formats_of_open_documents_survive_in_other_scripts(target: str, suffix: str) -> None:
    properties = '<style:text-properties fo:font-weight="bold"{}/>'
    style = f'<style:style style:name="T1" style:family="text">{properties}</style:style>'
    automatic = f"<office:automatic-styles>{style.format('')}</office:automatic-styles>"
    data = open_document('<text:p><text:span text:style-name="T1">A dog</text:span></text:p>', automatic)
    document = parse_document("a.odt", data, ("", target))
    source = document.units[0].source
    content = part(document.filled({0: (source[0], ARABIC, source[2])}), "content.xml")
    wanted = style.format(f' style:font-weight{suffix}="bold"' if suffix else "")
    assert wanted in content


@pytest.mark.parametrize(("name", "is_sheet"), [("a.odt", False), ("a.ods", True)])
def test_tables_of_open_documents_get_the_direction(name: str, is_sheet: bool) -> None:
    style = (
        '<style:style style:name="T" style:family="table"><style:table-properties{0}/></style:style>'
        '<style:style style:name="C" style:family="table-cell"><style:table-cell-properties{1}/></style:style>'
    )
    automatic = f"<office:automatic-styles>{style.format('', LTR_MODE)}</office:automatic-styles>"
    cell = "<table:table-cell><text:p>A dog</text:p></table:table-cell>"
    cell = f"<table:table><table:table-row>{cell}</table:table-row></table:table>"
    data = open_document(f"<office:spreadsheet>{cell}</office:spreadsheet>" if is_sheet else cell, automatic)
    content = part(filled(name, data, "ar", {"A dog": (ARABIC,)}), "content.xml")
    assert style.format(f" {RTL_MODE}", f" {RTL_MODE}") in content
    assert (f"<text:p>{ARABIC}" in content) == is_sheet  # whose cells have the direction of their text


LTR_MODE = ' style:writing-mode="lr-tb"'


@pytest.mark.parametrize(("target", "locale"), [("ja", "ja-JP"), ("zh_Hant", "zh-TW"), ("de", "en-US")])
def test_documents_declare_their_east_asian_locale(target: str, locale: str) -> None:
    data = word("<w:p><w:r><w:t>A dog</w:t></w:r></w:p>")
    styles = part(filled("a.docx", data, target, {"A dog": ("犬",)}), "word/styles.xml")
    assert re.findall(r"<w:lang [^>]*>", styles)[0] == f'<w:lang w:val="en-US" w:eastAsia="{locale}" w:bidi="ar-SA"/>'
    slide = part(filled("a.pptx", slides(), target, {"A dog": ("犬",)}), SLIDE)
    assert (f'<a:rPr lang="{locale}"/>' in slide) == (target != "de")
    language, region = locale.split("-")
    style = (
        '<style:style style:name="T1" style:family="text">'
        '<style:text-properties style:language-asian="{}" style:country-asian="{}"/></style:style>'
    )
    automatic = f"<office:automatic-styles>{style.format('en', 'US')}</office:automatic-styles>"
    found = filled("a.odt", open_document("<text:p>A dog</text:p>", automatic), target, {"A dog": ("犬",)})
    assert sorted(style.format(language, region).split()) == sorted(
        re.findall(r'(?s)<style:style style:name="T1".*?</style:style>', part(found, "content.xml"))[0].split()
    )
