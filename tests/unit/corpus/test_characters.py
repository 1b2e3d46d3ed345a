"""What is wrong with one text, and silence over sound ones of many languages."""

import pytest

from headwise.evaluate.corpus.characters import (
    BLANKS,
    CONTROL,
    DECOMPOSED,
    ENTITY,
    INVISIBLE,
    MOJIBAKE,
    NO_BREAK,
    REPLACEMENT,
    check_characters,
    position,
)

FAULTY = [
    (MOJIBAKE, "der Hund lÃ¤uft", 10),
    (MOJIBAKE, "dogâ€™s", 3),
    (MOJIBAKE, "StraÃŸe", 4),
    (MOJIBAKE, "for Â£47 million", 4),
    (MOJIBAKE, "собака".encode().decode("cp1252", "replace").replace("\ufffd", "\u0081"), 0),
    (MOJIBAKE, "日本語".encode().decode("latin-1"), 0),
    (REPLACEMENT, "l\ufffduft", 1),
    (CONTROL, "a\x07b", 1),
    (CONTROL, "the end.\u009d", 8),
    (INVISIBLE, "so\u00adfa", 2),
    (INVISIBLE, "\ufeffa", 0),
    (NO_BREAK, "Oui\u00a0!", 3),
    (NO_BREAK, "Oui\u202f!", 3),
    (DECOMPOSED, "cafe\u0301", 4),
    (ENTITY, "stone &amp; tile", 6),
    (ENTITY, "it&#39;s", 2),
    (BLANKS, "two  blanks", 3),
    (BLANKS, " edge", 0),
    (BLANKS, "edge ", 4),
]
SOUND = [
    "A dog runs; R&D & co.",
    "„Spaß“ und CAFÉ» im MENÜ“",
    "Où ça ? « Là-bas » à Âge d'or…",
    "NÃO há MAÇÃ; coração",
    "Привет, «мир»",
    "犬が走る。「はい」",
    "می‌خواهم",
    "कि की",
    "ไทยแลนด์",
    "Việt Nam được",
    "",
]


@pytest.mark.parametrize(("fault", "text", "place"), FAULTY)
def test_each_fault_is_found_alone_where_it_is(fault: str, text: str, place: int) -> None:
    assert check_characters(text)[0] == {fault}
    assert position(text, fault) == place


@pytest.mark.parametrize("text", SOUND)
def test_sound_text_has_none(text: str) -> None:
    assert check_characters(text)[0] == set()


@pytest.mark.parametrize(
    ("text", "scripts"),
    [("A dog, 7", {"Latin"}), ("7!", set()), ("\uff2b \u212a é", {"Latin"}), ("カナ 犬", {"Chinese or Japanese"})],
)
def test_scripts_of_a_text(text: str, scripts: set[str]) -> None:
    assert check_characters(text)[1] == scripts
