"""XLIFF with segments, protected text, limits of length, and the variants of Trados and memoQ."""

from xml.etree import ElementTree

import pytest

from headwise.documents.fill import TOO_LONG, targets_of, translation_steps
from headwise.documents.not_translated import count_kinds, not_translated
from headwise.documents.reading import parse_document
from headwise.documents.segments import SentenceTranslation
from headwise.documents.unit import Parts, UnitState, plain

HEAD = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"{}><file source-language="en" '
HEAD += 'target-language="de"><body>\n'
SEGMENTS = (
    '<trans-unit id="1"><source>One dog. Two dogs.</source><seg-source><mrk mtype="seg" mid="a">One dog.</mrk> '
    '<g id="1"><mrk mtype="seg" mid="b">Two <mrk mtype="protected">DOGS</mrk>.</mrk></g></seg-source>{}</trans-unit>'
)
TRADOS = ' xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"'
DEFS = (
    '<sdl:seg-defs><sdl:seg id="a" conf="Translated"/><sdl:seg id="b" percent="0"/>'
    '<sdl:seg id="c" locked="true"/></sdl:seg-defs>'
)


def exchange(units: str, namespace: str = "") -> str:
    return f"{HEAD.format(namespace)}{units}</body></file></xliff>"


def filled(text: str, targets: dict[int, Parts], name: str = "a.xlf") -> str:
    document = parse_document(name, text.encode())
    assert document.filled({}) == text.encode()
    written = document.filled(targets)
    ElementTree.fromstring(written)
    return written.decode()


def test_each_segment_is_a_unit_and_the_target_has_the_same_segments() -> None:
    text = exchange(SEGMENTS.format(""))
    document = parse_document("a.xlf", text.encode())
    assert [plain(unit.source) for unit in document.units] == [
        "One dog.",
        'Two <mrk mtype="protected">DOGS</mrk>.',
    ]
    assert [len(unit.source) for unit in document.units] == [1, 3]  # the protected text is one code
    code = document.units[1].source[1]
    target = (
        '<target state="needs-review-translation" state-qualifier="mt-suggestion"><mrk mtype="seg" mid="a">{}</mrk> '
        '<g id="1"><mrk mtype="seg" mid="b">Zwei <mrk mtype="protected">DOGS</mrk>.</mrk></g></target>'
    )
    for wanted, one in (({0: ("Ein & Hund.",)}, "Ein &amp; Hund."), ({}, "")):
        found = filled(text, {**wanted, 1: ("Zwei ", code, ".")})
        assert found == text.replace("</seg-source>", "</seg-source>" + target.format(one))


def test_segments_that_are_translated_stay() -> None:
    there = '<target><mrk mtype="seg" mid="a">Ein Hund.</mrk> <g id="1"><mrk mtype="seg" mid="b"/></g></target>'
    text = exchange(SEGMENTS.format(there))
    document = parse_document("a.xlf", text.encode())
    assert [unit.state for unit in document.units] == [UnitState.TRANSLATED, UnitState.UNTRANSLATED]
    marked = there.replace(
        "<target>", '<target state="needs-review-translation" state-qualifier="mt-suggestion">'
    ).replace('mid="b"/>', 'mid="b">Zwei.</mrk>')
    assert filled(text, {1: ("Zwei.",)}) == text.replace(there, marked)


def test_a_whole_translation_without_segments_is_one_unit() -> None:
    document = parse_document("a.xlf", exchange(SEGMENTS.format("<target>Ein Hund.</target>")).encode())
    assert [unit.state for unit in document.units] == [UnitState.TRANSLATED]


def test_files_of_trados_keep_their_namespace_and_get_its_status() -> None:
    there = (
        '<target><mrk mtype="seg" mid="a">Ein Hund.</mrk> <g id="1"><mrk mtype="seg" mid="b"></mrk></g></target>' + DEFS
    )
    text = exchange(SEGMENTS.format(there), TRADOS)
    found = filled(text, {1: ("Zwei.",)}, "a.sdlxliff")
    assert found == text.replace('mid="b"></mrk></g></target>', 'mid="b">Zwei.</mrk></g></target>').replace(
        '<sdl:seg id="b" percent="0"/>', '<sdl:seg id="b" percent="0" conf="Draft" origin="mt"/>'
    )
    states = [unit.state for unit in parse_document("a.sdlxliff", found.encode()).units]
    assert states == [UnitState.TRANSLATED, UnitState.FUZZY]


def test_locked_segments_of_trados_and_memoq_stay() -> None:
    locked = exchange(SEGMENTS.format(DEFS).replace('mid="b"', 'mid="c"'), TRADOS)
    assert count_kinds(not_translated(parse_document("a.sdlxliff", locked.encode()))) == {"locked": 1}
    unit = '<trans-unit id="1" mq:status="NotStarted"{}><source>A dog</source><target/></trans-unit>'
    text = exchange(unit.format("") + unit.format(' mq:locked="locked"'), ' xmlns:mq="MQXliff"')
    document = parse_document("a.mqxliff", text.encode())
    assert [unit.state for unit in document.units] == [UnitState.UNTRANSLATED, UnitState.KEPT]
    found = filled(text, {0: ("Ein Hund",)}, "a.mqxliff")
    assert found.count('mq:status="MachineTranslated"') == found.count('mq:status="NotStarted"') == 1
    assert 'state-qualifier="mt-suggestion">Ein Hund</target>' in found


@pytest.mark.parametrize("unit,fits", [('size-unit="char"', False), ('size-unit="pixel"', True), ("", True)])
def test_a_translation_that_is_too_long_is_not_used(unit: str, fits: bool) -> None:
    text = exchange(f'<trans-unit id="1" maxwidth="8" {unit}><source>A dog</source></trans-unit>')
    steps = translation_steps(parse_document("a.xlf", text.encode()), "en", markers=False)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([SentenceTranslation("Ein Hund.", log_prob=-0.1, n_tokens=(0, 2))])
    (one,) = end.value.value
    assert (targets_of([one]) != {}) == fits
    assert (TOO_LONG in one.warnings) != fits


def test_suggestions_stay() -> None:
    suggestion = "<alt-trans><source>A cat</source><target>Eine Katze</target></alt-trans>"
    text = exchange(f'<trans-unit id="1"><source>A dog</source>{suggestion}</trans-unit>')
    assert len(parse_document("a.xlf", text.encode()).units) == 1
    assert suggestion in filled(text, {0: ("Ein Hund",)})
