"""The checks of `benchmarks/round_trips.py`: each finds its kind of failure, and a good translation has none."""

import doctest
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headwise.documents.fill import TranslatedUnit
from headwise.documents.segments import MARKUP_LOST
from headwise.documents.unit import Code, Parts, Unit, UnitState

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
BOLD, END = Code("<g>", inline=True), Code("</g>", inline=True)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the source distribution")


@pytest.fixture(scope="module")
def stand_ins() -> Iterator[ModuleType]:
    for name in ("docx", "pptx", "openpyxl"):
        pytest.importorskip(name)
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("stand_ins")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(FOLDER)):
            sys.modules.pop(name)


def test_the_examples_in_docstrings(stand_ins: ModuleType) -> None:
    for module in (stand_ins, sys.modules["document_readers"]):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("source", "target", "warnings", "kinds"),
    [
        ((BOLD, "a", END, " dog"), ("DOG ", BOLD, "A", END), (), []),
        ((BOLD, "a", END, " dog"), ("DOG ", END, "A", BOLD), (), ["invalid"]),
        ((BOLD, "a", END, " dog"), ("DOG ", BOLD, "A"), (), ["codes"]),
        ((BOLD, "a", END, " dog"), ("DOG A",), (MARKUP_LOST,), []),
        (("<b>a</b> dog",), ("<b>dog</b> <b>a</b>",), (), ["codes"]),
        (("a %s",), ("%S a",), (), ["placeholders"]),
        (("a %s",), ("%s%s a",), (), ["placeholders"]),
        (("a {name}", BOLD, "b", END), ("a name", BOLD, "b", END), (), ["placeholders"]),
        (("a %s",), (), (), []),
    ],
)
def test_failures_of_a_unit(
    stand_ins: ModuleType, source: Parts, target: Parts, warnings: tuple[str, ...], kinds: list[str]
) -> None:
    unit = Unit(source, (), UnitState.UNTRANSLATED, 1)
    assert list(stand_ins._unit_failures(TranslatedUnit(0, unit, target, warnings=warnings), False)) == kinds


def test_the_identity_must_not_change_anything(stand_ins: ModuleType) -> None:
    unit = Unit(("a  dog",), (), UnitState.UNTRANSLATED, 1)
    assert list(stand_ins._unit_failures(TranslatedUnit(0, unit, ("a dog",)), True)) == ["not identical"]


@pytest.mark.parametrize(
    ("name", "before", "after", "kinds"),
    [
        ("a.md", "a **b**", "A **B**", []),
        ("a.md", "a **b**", "B**A **", ["codes"]),
        ("a.md", "a\n", "- A\n", ["codes"]),
        ("a.md", "---\na: b\n---\n", "---\na: b: c\n---\n", ["invalid"]),
        ("a.xhtml", "<p><b>a</b></p>", "<p><b>a</p></b>", ["invalid"]),
        ("a.json", "not JSON", "neither", []),
        ("a.ftl", "a = b\n", "a b\n", ["invalid", "codes"]),
    ],
)
def test_other_readers(stand_ins: ModuleType, name: str, before: str, after: str, kinds: list[str]) -> None:
    for module in ("markdown_it", "fluent.syntax"):
        pytest.importorskip(module)
    readings = (stand_ins.reading_of(name, text.encode()) for text in (before, after))
    assert [kind for kind, _ in stand_ins.faults(*readings)] == kinds


@pytest.mark.parametrize("name", ["identity", "reversed_words", "random_words"])
def test_links_of_a_stand_in_join_existing_words(stand_ins: ModuleType, name: str) -> None:
    source = "the black dog runs (far) away"
    target, links = getattr(stand_ins, name)(source)
    assert sorted(target.upper().split()) == sorted(source.upper().split())
    assert all(0 <= i < 6 and 0 <= j < 6 for i, j in links)


def test_a_document_is_filled_and_counted(stand_ins: ModuleType, tmp_path: Path) -> None:
    path, results = tmp_path / "a.xhtml", {}
    path.write_text("<p>a <b>black</b> dog</p>\n", encoding="utf-8")
    data = path.read_bytes()
    for name in stand_ins.STAND_INS:
        results[name] = stand_ins.Checked()
        stand_ins.check(name, path, data, stand_ins.reading_of(path.name, data), results[name])
    assert {(one.files, one.units) for one in results.values()} == {(1, 1)}
    assert not any(one.counts[kind] for one in results.values() for kind in stand_ins.FAILURES)
