"""Sources with their terms' translations beside them: in a corpus, and before a model that has learnt from one."""

import json
from pathlib import Path

import pytest

from headwise.cli import main
from headwise.config.data import TranslationData
from headwise.documents.glossary.annotation import annotate_pairs, supports_annotations
from headwise.documents.glossary.terms import Term
from headwise.text.tokens.tokenizer import Tokenizer

DOG, HOT_DOG = Term("dog", "Hund"), Term("hot dog", "Hotdog")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("A dog.", "Ein Hund.", "A ⟦ dog ⇒ Hund ⟧."),
        ("Dog", "Hunde", "⟦ Dog ⇒ Hund ⟧"),
        ("A dog", "Ein Köter", "A ⟦ dog ⇒ Köter ⟧"),
        ("A dog", "Ein Tier", "A dog"),
        ("A dog, a cat", "Ein Hund, eine Katze", "A ⟦ dog ⇒ Hund ⟧, a ⟦ cat ⇒ Katze ⟧"),
        ("A hot dog", "Ein Hotdog, kein Hund", "A ⟦ hot dog ⇒ Hotdog ⟧"),
        ("A ⟧ dog", "Ein ⟧ Hund", "A ⟧ dog"),
        ("", "", ""),
    ],
)
def test_terms_whose_translation_is_there_are_annotated(source: str, target: str, expected: str) -> None:
    terms = [DOG, HOT_DOG, Term("dog", "Köter"), Term("cat", "Katze")]
    assert list(annotate_pairs([(source, target)], terms, 1.0)) == [(expected, target)]


def test_a_share_of_the_pairs_is_drawn_by_the_seed() -> None:
    pairs = [("A dog", "Ein Hund")] * 1000
    drawn = [["⟦" in source for source, _ in annotate_pairs(pairs, [DOG], 0.3, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 250 < sum(drawn[0]) < 350
    assert list(annotate_pairs(pairs, [DOG], 0.0)) == pairs


def test_the_command_writes_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.en").write_text("A dog runs .\nTwo men .\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("Ein Hund rennt .\nZwei Männer .\n", encoding="utf-8")
    (tmp_path / "terms.tsv").write_text("dog\tHund\nmen\tLeute\n", encoding="utf-8")
    corpus, terms = [str(tmp_path / "a.en"), str(tmp_path / "a.de")], str(tmp_path / "terms.tsv")
    call = ["annotate", "--train", *corpus, "--glossary", terms, "--share", "1", "-o", str(tmp_path / "out.jsonl")]
    assert main(call) == 0
    assert "2 pairs, 1 term annotated in 1 source" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["src"] for line in lines] == ["A ⟦ dog ⇒ Hund ⟧ runs .", "Two men ."]
    assert [line["tgt"] for line in lines] == ["Ein Hund rennt .", "Zwei Männer ."]
    for wrong in ("1.5", "-0.1"):
        assert main([*call[:-3], wrong, *call[-2:]]) == 2
        assert f"{wrong} is not from 0 to 1" in capsys.readouterr().err


def test_whoever_has_learnt_from_annotated_sources_knows_the_marks() -> None:
    lines = ["A dog runs across the field .", "Two men are talking ."]
    told = [*lines, "A ⟦ dog ⇒ Hund ⟧ runs ."]
    learnt = [
        Tokenizer.train(some * 20, TranslationData(vocab_size=400, normalization="none")) for some in (lines, told)
    ]
    assert [supports_annotations(tokenizer) for tokenizer in learnt] == [False, True]
