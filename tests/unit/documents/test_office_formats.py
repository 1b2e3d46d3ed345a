"""Presentations, workbooks, OpenDocument files and e-books, as other libraries write them."""

import zipfile
from collections.abc import Callable
from copy import deepcopy
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import docx
import openpyxl
import pptx
import pytest
from ebooklib import epub
from odf import opendocument, table, text
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.worksheet.table import Table

from headwise.documents.not_translated import count_kinds, not_translated
from headwise.documents.reading import parse_document
from headwise.documents.unit import Document, UnitState, plain, strings_only
from headwise.errors import UserError


def in_memory(save: Callable[[Any], Any]) -> bytes:
    file = BytesIO()
    save(file)
    return file.getvalue()


def presentation() -> bytes:
    made: Any = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[1])
    slide.shapes.title.text = "A title"
    frame = slide.placeholders[1].text_frame
    frame.text = "Plain and "
    frame.paragraphs[0].add_run().text = "bold"
    frame.paragraphs[0].runs[1].font.bold = True
    frame.add_paragraph().text = "12"
    cell = slide.shapes.add_table(1, 1, 0, 0, 10, 10).table.cell(0, 0)
    cell.text = "In a & table"
    slide.notes_slide.notes_text_frame.text = "A note"
    return in_memory(made.save)


def workbook() -> bytes:
    made = openpyxl.Workbook()
    sheet = made.active
    assert sheet is not None
    sheet.title = "Sums"
    for row in (["Name", "Sum"], ["A dog & more", 12], ["A dog & more", "=Sums!B2"]):
        sheet.append(row)
    sheet.add_table(Table(displayName="T", ref="A1:B3"))
    sheet["D1"] = CellRichText("Plain and ", TextBlock(InlineFont(b=True), "bold"))
    return in_memory(made.save)


def writer() -> bytes:
    made: Any = opendocument.OpenDocumentText()
    made.text.addElement(text.H(outlinelevel=1, text="A title"))
    paragraph = text.P(text="Plain & ")
    paragraph.addElement(text.Span(text="marked"))
    note = text.Note(noteclass="footnote", id="n")
    note.addElement(text.NoteCitation(text="1"))
    note.addElement(text.NoteBody())
    note.childNodes[1].addElement(text.P(text="In the note"))
    paragraph.addElement(note)
    made.text.addElement(paragraph)
    return in_memory(made.write)


def spreadsheet() -> bytes:
    made: Any = opendocument.OpenDocumentSpreadsheet()
    sheet, row = table.Table(name="Sums"), table.TableRow()
    for attributes, content in (
        ({"valuetype": "string"}, "A dog"),
        ({"valuetype": "float", "value": "5"}, "5 EUR"),
        ({"valuetype": "string", "formula": "of:=A1"}, "A dog"),
    ):
        cell = table.TableCell(**attributes)
        cell.addElement(text.P(text=content))
        row.addElement(cell)
    sheet.addElement(row)
    made.spreadsheet.addElement(sheet)
    return in_memory(made.write)


def book() -> bytes:
    made = epub.EpubBook()
    made.set_identifier("id")
    made.set_title("A book")
    made.set_language("en")
    chapter = epub.EpubHtml(title="Chapter one", file_name="one.xhtml", lang="en")
    chapter.content = "<h1>Chapter one</h1><p>A <b>dog</b> &amp; more.</p>"
    made.add_item(chapter)
    made.toc = [epub.Link("one.xhtml", "Chapter one", "one")]
    made.spine = ["nav", chapter]
    made.add_item(epub.EpubNcx())
    made.add_item(epub.EpubNav())
    return in_memory(lambda file: epub.write_epub(file, made))


def sources(document: Document) -> list[str]:
    return [plain(unit.source) for unit in document.units if unit.state is UnitState.UNTRANSLATED]


def filled(document: Document) -> bytes:
    """All texts in capitals, codes as they are."""
    return document.filled(
        {
            n: tuple(part.upper() if isinstance(part, str) else part for part in unit.source)
            for n, unit in enumerate(document.units)
            if unit.state is UnitState.UNTRANSLATED
        }
    )


FILES = {
    "a.pptx": (presentation, ["A title", "Plain and <g1>bold</g1>", "In a & table", "A note"]),
    "a.xlsx": (workbook, ["A dog & more", "Plain and <g1>bold</g1>"]),
    "a.ods": (spreadsheet, ["A dog"]),
}


@pytest.mark.parametrize("name", FILES)
def test_texts_are_found(name: str) -> None:
    make, wanted = FILES[name]
    assert set(sources(parse_document(name, make()))) == set(wanted)


@pytest.mark.parametrize(
    "name,make",
    [
        ("a.pptx", presentation),
        ("a.xlsx", workbook),
        ("a.odt", writer),
        ("a.ods", spreadsheet),
        ("a.epub", book),
    ],
)
def test_only_texts_change(name: str, make: Callable[[], bytes]) -> None:
    data = make()
    document = parse_document(name, data, ("en", "de"))
    assert document.filled({}) == data
    found = filled(document)
    again = parse_document(name, found, ("en", "de"))
    assert [plain(u.source).lower() for u in again.units] == [plain(u.source).lower() for u in document.units]
    if name != "a.xlsx":  # where headers of tables stay
        texts = [one for unit in again.units for one in unit.source if isinstance(one, str)]
        assert not any(map(str.islower, "".join(texts)))
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(BytesIO(found)) as new:
        assert old.namelist() == new.namelist()
        assert [i.compress_type for i in old.infolist()] == [i.compress_type for i in new.infolist()]
        changed = [one for one in old.namelist() if old.read(one) != new.read(one)]
        assert 0 < len(changed) < len(old.namelist())
        for one in changed:
            ElementTree.fromstring(new.read(one))


def test_a_presentation_opens_with_its_formats() -> None:
    made = pptx.Presentation(BytesIO(filled(parse_document("a.pptx", presentation()))))
    slide: Any = made.slides[0]
    runs = slide.placeholders[1].text_frame.paragraphs[0].runs
    assert [(run.text, run.font.bold) for run in runs] == [("PLAIN AND ", None), ("BOLD", True)]
    assert slide.notes_slide.notes_text_frame.text == "A NOTE"
    assert slide.shapes[2].table.cell(0, 0).text == "IN A & TABLE"


def test_a_workbook_keeps_formulas_and_headers() -> None:
    document = parse_document("a.xlsx", workbook())
    sheet: Any = openpyxl.load_workbook(BytesIO(filled(document)), rich_text=True).active
    assert [cell.value for cell in sheet["A"]] == ["Name", "A DOG & MORE", "A DOG & MORE"]
    assert [cell.value for cell in sheet["B"]] == ["Sum", 12, "=Sums!B2"]
    assert str(sheet["D1"].value) == "PLAIN AND BOLD"
    assert sheet["D1"].value[1].font.b
    assert count_kinds(not_translated(document)) == {"table header": 2}


INLINE = (
    b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData><row r="1">'
    b'<c r="A1" t="inlineStr"><is><t>A dog</t></is></c><c r="B1" t="str"><f>A1</f><v>A dog</v></c>'
    b"</row></sheetData></worksheet>"
)


def test_inline_strings_are_translated_and_results_stay() -> None:
    data = in_memory(lambda file: with_files(file, {"xl/workbook.xml": b"<a/>", "xl/worksheets/sheet1.xml": INLINE}))
    document = parse_document("a.xlsx", data)
    assert sources(document) == ["A dog"]
    assert count_kinds(document.skipped) == {"result of a formula": 1}
    with zipfile.ZipFile(BytesIO(filled(document))) as made:
        found = made.read("xl/worksheets/sheet1.xml")
    assert found == INLINE.replace(b"<is><t>A dog", b'<is><t xml:space="preserve">A DOG')


def with_files(file: BytesIO, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as made:
        for name, content in contents.items():
            made.writestr(name, content)


def test_a_note_is_translated_with_its_paragraph() -> None:
    document = parse_document("a.odt", writer())
    assert [one for one in sources(document) if "<" not in one] == ["A title", "In the note"]
    made = opendocument.load(BytesIO(filled(document)))
    assert [str(one) for one in made.getElementsByType(text.P)] == ["PLAIN & MARKED1IN THE NOTE", "IN THE NOTE"]


def test_a_lost_note_is_appended() -> None:
    document = parse_document("a.odt", writer())
    number = next(n for n, unit in enumerate(document.units) if plain(unit.source).startswith("Plain"))
    made = opendocument.load(BytesIO(document.filled({number: ("Nur Text",)})))
    assert str(made.getElementsByType(text.P)[0]) == "Nur Text1In the note"


def test_numbers_and_results_of_formulas_are_counted() -> None:
    kinds = count_kinds(parse_document("a.ods", spreadsheet()).skipped)
    assert kinds == {"number or date": 1, "result of a formula": 1}


def test_paragraphs_without_letters_are_counted() -> None:
    made: Any = opendocument.OpenDocumentText()
    for one in ("12,345.50", "A dog", " "):
        made.text.addElement(text.P(text=one))
    word = docx.Document()
    for one in ("12,345.50", "A dog", " ", ""):
        word.add_paragraph(one)
    for name, data in (
        ("a.odt", in_memory(made.save)),
        ("a.docx", in_memory(word.save)),
        ("a.pptx", presentation()),
    ):
        found = [one.text for one in not_translated(parse_document(name, data)) if one.kind == "text without letters"]
        assert found == (["12"] if name == "a.pptx" else ["12,345.50"])


def test_the_text_of_a_slide_layout_is_counted_without_its_placeholders() -> None:
    made: Any = pptx.Presentation()
    layout = made.slide_layouts[6]
    layout.shapes._spTree.append(deepcopy(made.slides.add_slide(layout).shapes.add_textbox(0, 0, 10, 10)._element))
    layout.shapes[-1].text_frame.text = "A company"
    (found,) = parse_document("a.pptx", in_memory(made.save)).skipped
    assert (found.kind, found.text) == ("text of a slide layout", "A company")


def test_the_text_of_a_picture_in_a_book_is_counted() -> None:
    drawing = b"<svg xmlns='http://www.w3.org/2000/svg'><title>1</title><text>A <tspan>dog</tspan></text></svg>"
    with zipfile.ZipFile(BytesIO(book())) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    item = b'<item href="a.svg" id="a" media-type="image/svg+xml"/></manifest>'
    files["EPUB/content.opf"] = files["EPUB/content.opf"].replace(b"</manifest>", item)
    made = BytesIO()
    with_files(made, files | {"EPUB/a.svg": drawing})
    (found,) = parse_document("a.epub", made.getvalue()).skipped
    assert (found.kind, found.text) == ("text of a picture", "dog")


def test_a_book_is_translated_with_its_table_of_contents_and_language() -> None:
    document = parse_document("a.epub", book(), ("en", "de"))
    assert sources(document).count("Chapter one") >= 3  # chapter, navigation, and the older table of contents
    read: Any = epub.read_epub(BytesIO(filled(document)))
    assert read.get_metadata("DC", "language")[0][0] == "de"
    assert read.get_metadata("DC", "title")[0][0] == "A BOOK"
    assert "A <b>DOG</b> &amp; MORE." in read.get_item_with_href("one.xhtml").get_content().decode()


ENCRYPTED = b'<encryption><EncryptedData><CipherReference URI="one.xhtml"/></EncryptedData></encryption>'
PACKAGE = b'<package><manifest><item href="one.xhtml" media-type="application/xhtml+xml"/></manifest></package>'
CONTAINER = {"META-INF/container.xml": b'<container><rootfile full-path="a.opf"/></container>'}


@pytest.mark.parametrize(
    "name,contents,said",
    [
        ("a.pptx", {"a": b""}, "no slides"),
        ("a.xlsx", {"a": b""}, "no xl/workbook.xml"),
        ("a.odt", {"a": b""}, "no content.xml"),
        ("a.odt", {"content.xml": b"x", "META-INF/manifest.xml": b"<encryption-data/>"}, "is encrypted"),
        ("a.epub", {"a": b""}, "no META-INF/container.xml"),
        ("a.epub", CONTAINER, "'a.opf' is missing"),
        ("a.epub", {**CONTAINER, "a.opf": PACKAGE, "META-INF/encryption.xml": ENCRYPTED}, "copy protection"),
        ("a.epub", {**CONTAINER, "a.opf": b"<package>"}, "a.opf: line 1: invalid XML"),
    ],
)
def test_an_invalid_file_is_rejected_in_a_line(name: str, contents: dict[str, bytes], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_document(name, in_memory(lambda file: with_files(file, contents)))
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)


def test_runs_of_a_slide_have_no_line_breaks() -> None:
    """A break is an element of the paragraph there; PowerPoint repairs files with one in a run."""
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = "One text"
    file = BytesIO()
    deck.save(file)
    document = parse_document("a.pptx", file.getvalue())
    filled = document.filled({0: ("Ein\nText",)})
    title = pptx.Presentation(BytesIO(filled)).slides[0].shapes.title
    assert [child.tag.rpartition("}")[2] for child in title.text_frame.paragraphs[0].runs[0]._r] in (
        ["t"],
        ["rPr", "t"],
    )


def test_a_superscript_of_a_slide_or_a_cell_is_one_code() -> None:
    made: Any = pptx.Presentation()
    paragraph = made.slides.add_slide(made.slide_layouts[5]).shapes.title.text_frame.paragraphs[0]
    for number, one in enumerate(["A dog", "2", " runs"]):
        paragraph.add_run().text = one
        paragraph.runs[number].font._element.set("baseline", "30000" if number == 1 else "0")
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = CellRichText("A dog", TextBlock(InlineFont(vertAlign="superscript"), "2"), " runs")
    for name, data in (("a.pptx", in_memory(made.save)), ("a.xlsx", in_memory(book.save))):
        document = parse_document(name, data)
        assert sources(document)[:1] == ["A dog<x0/> runs"]
        assert sources(parse_document(name, filled(document)))[:1] == ["A DOG<x0/> RUNS"]


def test_a_rich_text_of_a_workbook_keeps_its_line_ends() -> None:
    made = openpyxl.Workbook()
    assert made.active is not None
    made.active["A1"] = CellRichText("Plain\nand ", TextBlock(InlineFont(b=True), "bold"))
    document = parse_document("a.xlsx", in_memory(made.save))
    sheet = openpyxl.load_workbook(BytesIO(filled(document)), rich_text=True).active
    assert sheet is not None
    assert str(sheet["A1"].value) == "PLAIN\nAND BOLD"


def test_fields_of_a_paragraph_are_counted_and_line_ends_are_blanks() -> None:
    made: Any = opendocument.OpenDocumentText()
    paragraph = text.P(text="A long\n  text by ")
    paragraph.addElement(text.AuthorName(text="Ann"))
    paragraph.addElement(text.MetaField(id="a", text=" on the page."))
    made.text.addElement(paragraph)
    document = parse_document("a.odt", in_memory(made.write))
    found = [strings_only(unit.source) for unit in document.units]
    assert found == ["A long text by  on the page."]
    assert [(one.kind, one.text) for one in document.skipped] == [("field", "Ann")]
