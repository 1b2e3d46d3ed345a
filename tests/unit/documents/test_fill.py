"""Which way of translating a unit is taken, and what becomes of it where none will do."""

import re
from collections.abc import Mapping

import pytest

from headwise.documents.fill import TranslatedUnit, translation_steps
from headwise.documents.formats.po import read_po
from headwise.documents.reading import parse_document
from headwise.documents.segments import CODES_CHANGED, GUESSED, SentenceTranslation
from headwise.documents.unit import plain


def filled(source: str, answers: Mapping[str, str], marks: bool = True) -> TranslatedUnit:
    """The only unit of a catalogue, by a model that gives these answers."""
    document = read_po("a.po", f'msgid "{source}"\nmsgstr ""\n'.encode(), ("", ""))
    steps = translation_steps(document, "en", marks)
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send([_answer(answers[text], wanted.aligned) for text in wanted.texts])
    except StopIteration as end:
        return end.value[0]


def _answer(text: str, aligned: bool) -> SentenceTranslation:
    links = frozenset([(0, 0), (1, 1)]) if aligned else None
    return SentenceTranslation(text, log_prob=-0.1, n_tokens=(0, 2), links=links)


@pytest.mark.parametrize("added", ["``", "``x``", "`x", ":func:`f`", "%s", "<b>", "https://a.org"])
def test_a_way_that_adds_codes_has_failed_as_one_that_loses_them(added: str) -> None:
    source, marked, bare = "see ``a`` now", "see ⓵ now", "see now"
    good = filled(source, {marked: "siehe ⓵ jetzt"})
    assert (plain(good.target), good.warnings) == ("siehe ``a`` jetzt", ())
    answers = {marked: f"siehe {added} ⓵ jetzt", source: f"siehe ``a`` {added} jetzt"}
    third = filled(source, {**answers, bare: "siehe jetzt"})
    assert (plain(third.target), third.warnings) == ("siehe ``a`` jetzt", (GUESSED,))
    for lost in ("siehe jetzt", "siehe ⓵ ⓵ jetzt"):
        assert filled(source, {marked: lost, source: "siehe jetzt", bare: "siehe jetzt"}).warnings == (GUESSED,)
    none = filled(source, {**answers, bare: f"siehe {added} jetzt"})
    assert (none.target, none.warnings) == ((), (CODES_CHANGED,))


def test_a_catalogue_has_the_blanks_that_markup_needs() -> None:
    one = filled("Use ``code`` and :ref:`label` here.", {"Use ⓵ and ⓶ here.": "語⓵語⓶語。"})
    document = read_po("a.po", f'msgid "{plain(one.unit.source)}"\nmsgstr ""\n'.encode(), ("", ""))
    assert r'msgstr "語\\ ``code``\\ 語\\ :ref:`label`\\ 語。"' in document.filled({0: one.target}).decode()


def test_ends_of_emphasis_that_look_the_same_are_not_left_to_a_model() -> None:
    document = parse_document("a.md", b"*Is it* there: yes\n")
    steps = translation_steps(document, "en", False)
    assert next(steps).texts == ["Is it there: yes"]


def test_markers_that_are_not_nested_are_not_used() -> None:
    source, marked, bare = "see <b>a</b> <i>b</i>", "see ⓵a⓶ ⓷b⓸", "see a b"
    nested = filled(source, {marked: "⓷b⓸ und ⓵a⓶ siehe"})
    assert (plain(nested.target), nested.warnings) == ("<i>b</i> und <b>a</b> siehe", ())
    for answer in ("⓶a⓵ ⓷b⓸ siehe", "⓵a ⓷b⓶⓸ siehe", "⓵a ⓷b⓸⓶ siehe"):
        found = filled(source, {marked: answer, source: "sehen", bare: "sieh a b"})
        assert (plain(found.target), found.warnings) == ("sieh <b>a</b> <i>b</i>", (GUESSED,))


@pytest.mark.parametrize(
    "source,answer,is_filled",
    [
        ("user %s has %d files", "⓵ hat ⓶ Dateien", True),
        ("user %s has %d files", "⓶ Dateien hat ⓵", False),  # a program would read a text as a number
        ("user %s has %s files", "⓶ Dateien hat ⓵", False),
        ("user {} has {} files", "⓶ Dateien hat ⓵", False),
        ("user %1$s has %2$d files", "⓶ Dateien hat ⓵", True),
        ("user %(a)s has {b} files", "⓶ Dateien hat ⓵", True),
        ("on %d %B at %H", "um ⓷ am ⓵ ⓶", True),
    ],
)
def test_placeholders_without_a_name_or_number_keep_their_order(source: str, answer: str, is_filled: bool) -> None:
    marked = source
    for marker, code in zip("⓵⓶⓷", re.findall(r"%\S+|\{\S*\}", source), strict=False):
        marked = marked.replace(code, marker, 1)
    bare = " ".join(re.sub(r"[⓵⓶⓷]", "", marked).split())
    found = filled(source, {marked: answer, source: "x", bare: "%q"})
    assert bool(found.target) is is_filled
    assert is_filled or found.warnings == (CODES_CHANGED,)


def test_a_sentence_without_codes_gets_none() -> None:
    for marks in (True, False):
        assert filled("100 files", {"100 files": "100%s"}, marks).warnings == (CODES_CHANGED,)
        assert plain(filled("100% of us", {"100% of us": "100 % von uns"}, marks).target) == "100 % von uns"


def test_between_sentences_stands_what_the_language_has_there() -> None:
    english = {"它跑。": "It runs.", "它停 ⓵。": "It stops ⓵."}
    assert plain(filled("它跑。它停 %s。", english).target) == "It runs. It stops %s."
    assert (
        plain(filled("It runs. It stops %s.", {"It runs.": "它跑。", "It stops ⓵.": "它停 ⓵。"}).target)
        == "它跑。它停 %s。"
    )


@pytest.mark.parametrize(
    ("source", "target", "warnings"),
    [
        ("The file could not be opened for writing.", "无法打开文件写入。", ()),
        ("The file could not be opened for writing.", "ファイルを書き込み用に開けませんでした。", ()),
        ("无法打开文件写入。", "The file could not be opened for writing.", ()),
        ("The file could not be opened for writing.", "无法。", ("much shorter than its source",)),
        ("无法打开。", "The file could not be opened for writing, nor for reading.", ("much longer than its source",)),
        ("The file is opened now", "文件打开打开打开打开打开", ("repeats itself",)),
        ("无法打开文件", "无法打开文件", ("the same as its source",)),
        ("哈哈哈哈", "Hahaha", ()),
    ],
)
def test_warnings_for_text_without_blanks(source: str, target: str, warnings: tuple[str, ...]) -> None:
    assert filled(source, {source: target}).warnings == warnings
