"""Translations with a glossary, by a model that copies its source: a term's target is there, all else is copied."""

import pytest
import torch
from torch import nn

from headwise.config.data import TranslationData
from headwise.config.settings import SearchSettings
from headwise.core.cache import DecoderCache
from headwise.documents.glossary.terms import Glossary, Term
from headwise.documents.glossary.translation import GlossaryTranslator, with_glossary
from headwise.errors import UserError
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.translator import TextTranslator
from headwise.text.tokens.tokenizer import Tokenizer


class CopyModel(nn.Module):
    """Writes its source: the memory is the source, one-hot, and a step reads the position it is at."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.device_of = nn.Parameter(torch.zeros(1))

    def encode(self, src, src_mask):
        return 20.0 * nn.functional.one_hot(src, self.vocab).float()

    def start_cache(self, memory, src_mask):
        return DecoderCache.start(memory, src_mask, 0)

    def decode(self, tgt_in, memory, src_mask, cache=None):
        position = min(cache.length, memory.size(1) - 1)
        cache.length += 1
        return memory[:, position : position + 1]

    def logits(self, hidden):
        return hidden


LINES = ["A dog runs across the field .", "Two men are talking .", "The dog sees the men ."]


def tokenizer_of(lines: list[str], vocab_size: int = 300) -> Tokenizer:
    return Tokenizer.train(lines * 20, TranslationData(vocab_size=vocab_size, normalization="none"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tokenizer_of(LINES)


@pytest.fixture
def translator(tokenizer: Tokenizer) -> TextTranslator:
    return TextTranslator(engine_of(CopyModel(tokenizer.vocab_size)), tokenizer, SearchSettings(beam_size=2))


TERMS = [("dog", "men"), ("across the field", "talking"), ("Two", "Two")]


def test_every_term_is_in_its_translation_and_other_texts_are_as_before(translator: TextTranslator) -> None:
    texts = ["A dog runs .", "", "Two men", "A dog runs across the field", "the men are talking ."]
    plain, kept = translator.translate(texts), with_glossary(translator, TERMS).translate(texts)
    assert [t.text for t in plain] == texts
    assert "men" in kept[0].text and "men" in kept[3].text and "talking" in kept[3].text
    assert kept[1] == plain[1] and kept[4] == plain[4], "no terms, no difference"
    assert kept[2].text == plain[2].text, "what stays is there already"
    assert kept[0].score < plain[0].score


@pytest.mark.parametrize("beam_size", [1, 2, 8])
def test_a_text_without_room_is_translated_without_its_terms(translator: TextTranslator, beam_size: int) -> None:
    short = {"max_length_factor": 0.0, "max_length_extra": 4, "beam_size": beam_size}
    long = with_glossary(translator, [("dog", "Two men are talking across the field")])
    assert long.translate(["A dog", "dog"], **short) == translator.translate(["A dog", "dog"], **short)


def test_pieces_that_nobody_can_write_are_left_out(translator: TextTranslator) -> None:
    glossary = [("dog", "Ψ"), ("runs", "men")]
    assert "men" in with_glossary(translator, glossary).translate(["A dog runs ."])[0].text


def test_a_long_text_keeps_to_its_terms_in_the_part_where_they_stand(translator: TextTranslator) -> None:
    text = "Two men are talking . A dog runs ."
    [found] = with_glossary(translator, [("dog", "field")]).translate([text], max_source_length=8)
    assert found.parts == 2
    assert found.text.startswith("Two men are talking .") and "field" in found.text


def test_a_prefix_goes_with_a_glossary_and_drawing_does_not(translator: TextTranslator) -> None:
    keeping = with_glossary(translator, TERMS)
    [found] = keeping.translate(["A dog runs ."], prefix="Two")
    assert found.text.startswith("Two") and "men" in found.text
    with pytest.raises(UserError, match="remove sample and drafts"):
        keeping.translate(["A dog runs ."], sample=True)


def test_names_go_as_marks_through_a_model_that_knows_them() -> None:
    tokenizer = tokenizer_of([*LINES, "⓵ sees ⓶ .", "⓶ sees ⓵ ."])
    keeping = with_glossary(
        TextTranslator(engine_of(CopyModel(tokenizer.vocab_size)), tokenizer, SearchSettings(beam_size=2)),
        [("Ψωμί", "Ψωμί"), ("A dog", "A dog"), ("men", "field")],
    )
    found = keeping.translate(["A dog sees Ψωμί .", "Ψωμί runs", "The dog sees the men ."], n_best=2)
    assert [t.text for t in found[:2]] == ["A dog sees Ψωμί .", "Ψωμί runs"]
    assert "field" in found[2].text
    assert all(name in t.text for t in found[0].alternatives for name in ("A dog", "Ψωμί"))


def test_a_model_of_annotated_sources_is_told_by_them_and_what_stays_is_searched_for() -> None:
    tokenizer = tokenizer_of([*LINES, "A ⟦ dog ⇒ men ⟧ runs ."], 400)
    translator = TextTranslator(engine_of(CopyModel(tokenizer.vocab_size)), tokenizer, SearchSettings(beam_size=2))
    keeping = with_glossary(translator, [("dog", "field"), ("men", "men"), ("Two", "talking")])
    found = keeping.translate(["A dog runs .", "Two men", "are talking ."])
    assert found[0].text == "A ⟦ dog ⇒ field ⟧ runs ."
    assert found[1].text == "⟦ Two ⇒ talking ⟧ men"
    assert isinstance(keeping, GlossaryTranslator)
    assert keeping.phrases([tokenizer.encode("A dog sees men")]) == [[tokenizer.encode("men")]]
    assert found[2] == translator.translate(["are talking ."])[0]


def test_whoever_counts_is_told_of_every_text(translator: TextTranslator) -> None:
    seen = []

    class Counting(Glossary):
        def note(self, source: str, translation: str) -> None:
            seen.append((source, translation))

    with_glossary(translator, Counting([Term("dog", "men")])).translate(["Two men", "A dog"])
    assert seen[0] == ("Two men", "Two men")
    assert seen[1][0] == "A dog" and "men" in seen[1][1]
