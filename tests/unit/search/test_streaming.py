"""A stream is the greedy translation in chunks of text, each as early as possible."""

import pytest
import torch
from torch import nn

from headwise.config.data import TranslationData
from headwise.config.settings import SearchSettings
from headwise.core.cache import DecoderCache
from headwise.errors import UserError
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.translator import TextTranslator
from headwise.text.tokens.tokenizer import Tokenizer

TEXTS = [
    "A dog runs.",
    "",
    "  ",
    "a  b",
    "\x00\x01",
    "🐕\u200d🦺 👩🏽\u200d🚀 x",
    "日本語。",
    "\ufffd",
    "a\ufffd",
    "\ufffd b",
    "ß" * 30,
    "end \n",
]


class CopyModel(nn.Module):
    """Copies its source, one token per step, and counts the steps."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.somewhere = nn.Parameter(torch.zeros(1))
        self.steps = 0

    def encode(self, src, src_mask):
        return 20.0 * nn.functional.one_hot(src, self.vocab).float()

    def start_cache(self, memory, src_mask):
        return DecoderCache.start(memory, src_mask, 0)

    def decode(self, tgt_in, memory, src_mask, cache=None):
        self.steps += 1
        cache.length += 1
        return memory[:, min(cache.length, memory.size(1)) - 1].unsqueeze(1)

    def logits(self, hidden):
        return hidden


@pytest.fixture(scope="module")
def translator():
    lines = ["A dog runs across the field .", "Two men are talking .", "The dog sees the men ."] * 20
    tokenizer = Tokenizer.train(lines, TranslationData(vocab_size=300, normalization="none"))
    return TextTranslator(engine_of(CopyModel(tokenizer.vocab_size)), tokenizer, SearchSettings(beam_size=4))


@pytest.mark.parametrize("text", TEXTS)
def test_the_joined_chunks_are_the_translation(translator, text):
    pieces = list(translator.stream(text))
    assert "".join(pieces) == translator.translate([text], beam_size=1)[0].text == text.strip()
    assert all(pieces)


def test_no_chunk_has_an_incomplete_character(translator):
    assert not any("\ufffd" in piece for piece in translator.stream("🐕 日本語 dog"))


def test_a_chunk_comes_before_the_next_step(translator):
    stream = translator.stream("A dog runs.")
    before = translator.model.steps
    assert "A dog runs.".startswith(next(stream))
    assert translator.model.steps == before + 1
    assert not torch.is_inference_mode_enabled()  # between two pieces the caller's mode is his own


def test_a_long_text_streams_part_by_part(translator):
    text = " ".join(["The dog sees the men ."] * 30)
    whole = translator.translate([text], beam_size=1, max_source_length=40)[0]
    assert whole.parts > 1
    assert "".join(translator.stream(text, max_source_length=40)) == whole.text


def test_prefix_and_maximum_length_apply(translator):
    settings = {"max_length_factor": 0.0, "max_length_extra": 3}
    whole = translator.translate(["A dog runs."], "Two", beam_size=1, **settings)[0].text
    assert "".join(translator.stream("A dog runs.", "Two", **settings)) == whole
    assert whole.startswith("Two")


@pytest.mark.parametrize("settings", [{"beam_size": 4}, {"n_best": 2}, {"top_p": 2.0}])
def test_beam_search_is_refused(translator, settings):
    with pytest.raises(UserError):
        list(translator.stream("dog", **settings))
