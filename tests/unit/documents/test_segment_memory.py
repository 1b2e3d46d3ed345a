"""Which segments a translation memory answers, and which it offers."""

import random
from pathlib import Path

import pytest
from rapidfuzz import fuzz

from headwise.documents.fill import TranslatedUnit, look_up, memory_matches, translation_steps
from headwise.documents.formats.html_page import parse_html
from headwise.documents.markup.placeholders import with_codes
from headwise.documents.passages import Characters
from headwise.documents.segment_memory import SegmentMemory, memory_key, read_segment_memory
from headwise.documents.segments import SentenceTranslation
from headwise.documents.unit import plain
from headwise.errors import UserError

MEMORY = {
    "A dog. A cat.": "Hund und Katze.",
    "A bird.": "Ein Vogel.",
    "A <b>big</b> fish.": "Ein <b>großer</b> Fisch.",
    "Delete {n} files?": "{n} Dateien löschen?",
    "Lost {n}.": "Verloren.",
    "Extra.": "Extra {n}.",
}


def filled(html: str, memory: SegmentMemory) -> tuple[str, list[str], list[TranslatedUnit]]:
    """The page by a model that writes capitals, what it was asked, and the units."""
    document = parse_html(Characters("a.html", html.encode()))
    steps, asked = translation_steps(document, "en", markers=True, has_memory=True), list[str]()
    try:
        request = next(steps)
        while True:
            if request.is_lookup:
                request = steps.send(look_up(request.texts, memory))
                continue
            asked += request.texts
            request = steps.send(
                [SentenceTranslation(text.upper(), log_prob=-0.1, n_tokens=(0, 2)) for text in request.texts]
            )
    except StopIteration as end:
        units = end.value
    return document.filled({one.number: one.target for one in units}).decode(), asked, units


@pytest.mark.parametrize(
    "html,expected,asked",
    [
        ("<p>A dog. A cat.</p>", "<p>Hund und Katze.</p>", []),  # the unit before its sentences
        ("<p>A bird.  A horse.</p>", "<p>Ein Vogel. A HORSE.</p>", ["A horse."]),  # a sentence
        ("<p> A  bird. </p>", "<p> Ein Vogel. </p>", []),  # whatever the blanks
        ("<p>A <b>big</b> fish.</p>", "<p>Ein <b>großer</b> Fisch.</p>", []),
        ("<p>A <i>big</i> fish.</p>", "<p>A <i>BIG</i> FISH.</p>", ["A ⓵big⓶ fish."]),  # other codes
        ("<p>Delete {n} files?</p>", "<p>{n} Dateien löschen?</p>", []),
        ("<p>Lost {n}.</p>", "<p>LOST {n}.</p>", ["Lost ⓵."]),  # its translation lacks a code
        ("<p>Extra.</p>", "<p>EXTRA.</p>", ["Extra."]),  # or adds one
        ("<p>a bird.</p>", "<p>A BIRD.</p>", ["a bird."]),  # not exact
    ],
)
def test_exact_matches_replace_the_model(html: str, expected: str, asked: list[str]) -> None:
    assert filled(html, SegmentMemory(MEMORY))[:2] == (expected, asked)


def test_similar_segments_are_offered_with_their_score() -> None:
    memory = SegmentMemory(MEMORY)
    _, _, (one, two) = filled("<p>A bird!</p><p>Nothing like it. A dog. A cats.</p>", memory)
    (match,) = memory_matches(one, memory.best_match)
    assert (match.source, match.target, match.score) == (
        "A bird.",
        "Ein Vogel.",
        fuzz.ratio("A bird.", "A bird!") / 100,
    )
    assert memory_matches(two, memory.best_match) == []
    assert memory.best_match(("A bird.",)).score == 1.0  # type: ignore[union-attr]
    assert memory.best_match(("Quite another text",)) is None


def test_the_best_match_is_that_of_a_full_comparison() -> None:
    rng = random.Random(1)
    words = [f"{chr(97 + n % 26)}{n}" for n in range(300)]
    keys = [" ".join(rng.choices(words, k=rng.randint(3, 15))) for _ in range(2000)]
    memory = SegmentMemory({key: key for key in keys})
    for key in rng.sample(keys, 60):
        text = key.replace(rng.choice(key.split()), rng.choice(words)) + rng.choice(["", " more"])
        scores = [fuzz.ratio(text, other) / 100 for other in keys]
        found = memory.best_match((text,))
        assert (found.score if found else 0.0) == pytest.approx(max(scores) if max(scores) >= 0.7 else 0.0)


def test_files_of_every_bilingual_format_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(
        'msgid "Delete {n} files?"\nmsgstr "{n} Dateien löschen?"\n\nmsgid "Lost {n}"\nmsgstr "Verloren"\n\n'
        '#, fuzzy\nmsgid "dog"\nmsgstr "Hund"\n'
    )
    (tmp_path / "a.tmx").write_text(
        '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>A bird.</seg></tuv>'
        '<tuv xml:lang="de"><seg>Ein Vogel.</seg></tuv></tu></body></tmx>'
    )
    memory = read_segment_memory([str(tmp_path / "a.po"), str(tmp_path / "a.tmx")], ("en", "de"))
    assert len(memory) == 2
    assert plain(memory.recall(with_codes(("Delete  {n} files?",))) or ()) == "{n} Dateien löschen?"
    assert memory.known([memory_key(("A bird.",)), "dog"]) == {"A bird.": "Ein Vogel."}
    with pytest.raises(UserError, match=r"--memory b.txt: not.*.po"):
        read_segment_memory(["b.txt"])
