"""One output line for each input line, with a model that copies its source."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from headwise.config.data import TranslationData
from headwise.config.settings import SearchSettings
from headwise.contract import Hypothesis
from headwise.core.cache import DecoderCache
from headwise.errors import UserError
from headwise.models.translation.translator import Translator
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.translator import TextTranslator, split_text
from headwise.serve.cluster.translation import ClusterModel
from headwise.text.tokens.tokenizer import Tokenizer


class CopyModel(nn.Module):
    """Copies its source: the memory is the one-hot source, and a step reads its position."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.vocab = vocab
        self.device_of = nn.Parameter(torch.zeros(1))
        self.longest = 0

    def encode(self, src, src_mask):
        self.longest = max(self.longest, src.size(1))
        assert bool((src != 0).any(1).all())
        return 20.0 * nn.functional.one_hot(src, self.vocab).float()

    def start_cache(self, memory, src_mask):
        return DecoderCache.start(memory, src_mask, 0)

    def decode(self, tgt_in, memory, src_mask, cache=None):
        position = min(cache.length, memory.size(1) - 1)
        cache.length += 1
        return memory[:, position : position + 1]

    def logits(self, hidden):
        return hidden


@pytest.fixture(scope="module")
def tokenizer():
    lines = ["A dog runs across the field .", "Two men are talking .", "The dog sees the men ."] * 20
    return Tokenizer.train(lines, TranslationData(vocab_size=300, normalization="none"), special=["<2de>"])


@pytest.fixture
def model(tokenizer):
    return CopyModel(tokenizer.vocab_size)


@pytest.fixture
def translator(model, tokenizer):
    return TextTranslator(engine_of(model), tokenizer, SearchSettings(beam_size=2))


ODD_LINES = [
    *("A dog runs.", "", "   ", "\t", "\u00a0\u3000", "The dog", "x", "a\tb", "\x00\x01\x1b[31m", "e\u0301"),
    *("🐕\u200d🦺 👩🏽\u200d🚀", "\u2028", "a\u2028b\x85c\x0bd", "</s> <pad> <s>", "日本語。", "\ufeffdog"),
    *("ß" * 50, "end"),
]


def test_one_output_line_for_each_input_line(translator):
    translations = translator.translate(ODD_LINES)
    assert [t.text for t in translations] == [line.strip() for line in ODD_LINES]
    assert [t.parts for t in translations] == [int(bool(line.strip())) for line in ODD_LINES]


@settings(max_examples=25)
@given(texts=st.lists(st.text(max_size=60), max_size=6))
def test_any_text_gives_one_line(tokenizer, texts):
    found = TextTranslator(
        engine_of(CopyModel(tokenizer.vocab_size)), tokenizer, SearchSettings(beam_size=1)
    ).translate(texts)
    assert len(found) == len(texts)
    for text, translation in zip(texts, found, strict=True):
        assert "\n" not in translation.text and "\r" not in translation.text
        assert translation.text.split() == text.split()


def test_lone_surrogates_and_line_breaks(translator):
    assert [t.text for t in translator.translate(["a \ud800 b", "a\r\nb\nc"])] == ["a ? b", "a b c"]


def test_blank_lines_do_not_reach_the_model(translator, model):
    model.encode = pytest.fail
    [t] = translator.translate([" \t "])
    assert (t.text, t.score, t.log_prob, t.pieces, t.alternatives) == ("", 0.0, 0.0, [], ())


@pytest.mark.parametrize(
    "text",
    ["The dog sees the men . " * 200, "dog " * 2_000, "x" * 10_000, "日本語です。" * 100, "🐕" * 300],
)
def test_long_lines_are_translated_in_parts_and_nothing_is_lost(translator, model, text):
    [t] = translator.translate([text], max_source_length=64, beam_size=1)
    assert "".join(t.text.split()) == "".join(text.split())
    assert model.longest <= 64
    assert t.parts > 1 and len(t.pieces) == len(t.token_log_probs)


def test_no_spaces_between_parts_in_japanese(translator):
    [t] = translator.translate(["日本語です。" * 100], max_source_length=64, beam_size=1)
    assert t.parts > 1 and t.text == "日本語です。" * 100


def test_parts_follow_sentences_and_keep_their_language_token(translator, model, tokenizer):
    text = "<2de> Two men are talking . The dog sees the men ."
    limit = len(tokenizer.encode(text))  # one too few for all of it and the end mark
    [t] = translator.translate([text], max_source_length=limit)
    assert t.text == "<2de> Two men are talking . <2de> The dog sees the men ."
    assert t.parts == 2


def test_learned_positions_limit_the_parts(model, tokenizer):
    [t] = TextTranslator(engine_of(model), tokenizer, max_len=20).translate(["The dog sees the men . " * 20])
    assert model.longest <= 20 and t.text == ("The dog sees the men . " * 20).strip()


def test_alternatives_are_the_rest_of_the_n_best(translator):
    [t] = translator.translate(["The dog"], n_best=2)
    assert [a.text == t.text for a in t.alternatives] == [False]
    assert t.alternatives[0].score <= t.score and t.alternatives[0].source_pieces == t.source_pieces
    assert t.pieces == ["▁The", "▁dog"]


def test_alternatives_of_a_long_line_stay_ranked(translator):
    [t] = translator.translate(["The dog sees the men . " * 30], n_best=2, max_source_length=32)
    assert t.parts > 1 and t.alternatives[0].parts == t.parts and t.alternatives[0].score <= t.score


def test_every_output_except_blank_ones_starts_with_the_prefix(translator):
    texts = [t.text for t in translator.translate(["men dog men", "", "x y z"], prefix="The dog ")]
    assert texts[0].startswith("The dog") and texts[1] == "" and texts[2].startswith("The dog")


def test_lines_are_streamed(translator):
    read = 0

    def lines():
        nonlocal read
        for i in range(10):
            read += 1
            yield f"dog {i}\n"

    stream = translator.translate_lines(lines(), chunk_lines=4)
    assert next(stream).text == "dog 0" and read == 4
    assert [t.text for t in stream] == [f"dog {i}" for i in range(1, 10)]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"compute": "int2"}, "compute"),
        ({"beam_sise": 2}, "did you mean 'beam_size'"),
        ({"beam_size": "four"}, "beam_size"),
        ({"beam_size": 0}, "beam_size"),
        ({"n_best": 9, "beam_size": 4}, "n_best = 9 is more than"),
        ({"top_p": 2.0}, "top_p"),
        ({"temperature": -1.0}, "temperature"),
        ({"length_penalty": -0.5}, "length_penalty"),
    ],
)
def test_wrong_settings_are_named(translator, overrides, message):
    with pytest.raises(UserError, match=message):
        translator.translate(["dog"], **overrides)


def test_one_string_instead_of_a_list_is_explained(translator):
    with pytest.raises(UserError, match="list"):
        translator.translate("dog")


def test_the_precision_follows_the_setting(model, tokenizer):
    """`compute` of a call overrides the configured one."""
    asked = []

    def prepare(compute):
        asked.append(compute)
        return engine_of(model)

    translator = TextTranslator(prepare, tokenizer, SearchSettings(beam_size=2, compute="int8"))
    texts = [translator.translate(["a dog"], **overrides)[0].text for overrides in ({}, {"compute": "float32"})]
    assert asked == ["int8", "float32"] and texts == ["a dog"] * 2


def test_overrides_do_not_change_the_configuration(translator):
    assert translator.settings({"beam_size": 1, "length_penalty": 1}).length_penalty == 1.0
    assert translator.config == SearchSettings(beam_size=2)


def test_split_prefers_sentence_ends_then_spaces_then_the_middle():
    def fits(part):
        return len(part) <= 12

    assert split_text("Aaa bbb ccc. Ddd eee.", fits) == ["Aaa bbb ccc.", "Ddd eee."]
    assert split_text('He said "No." She left.', lambda part: len(part) < 20) == [
        'He said "No."',
        "She left.",
    ]
    assert split_text("aaaa bbbb cccc dddd", fits) == ["aaaa bbbb", "cccc dddd"]
    assert split_text("a" * 20, fits) == ["a" * 10, "a" * 10]
    assert split_text("一二三四五六。七八九十一二三", fits) == ["一二三四五六。", "七八九十一二三"]
    assert split_text("x", lambda part: False) == ["x"]
    assert split_text("  ", fits) == []


def test_a_shortlist_is_loaded_on_request(model, tokenizer):
    reads: list[CandidateTable] = []
    nothing_else = np.full((tokenizer.vocab_size, 1), tokenizer.encode("dog")[0])

    def read() -> CandidateTable:
        reads.append(CandidateTable(nothing_else[0], nothing_else))
        return reads[-1]

    translator = TextTranslator(engine_of(model), tokenizer, SearchSettings(beam_size=2), shortlist=read)
    assert translator.translate(["The men"])[0].text == "The men" and not reads
    # The source's own pieces may be copied; declared and single-byte pieces among them.
    texts = ["<2de> The men", "日本語", "\x00\u00e9"]
    assert [t.text for t in translator.translate(texts, shortlist=True)] == texts and reads


def test_a_missing_shortlist_is_an_error_except_in_training(model, tokenizer):
    def read() -> CandidateTable:
        raise UserError("there is none")

    with pytest.raises(UserError, match="there is none"):
        TextTranslator(engine_of(model), tokenizer, shortlist=read).translate(["The men"], shortlist=True)
    assert TextTranslator(engine_of(model), tokenizer).translate(["The men"], shortlist=True)[0].text == "The men"


def test_a_line_too_large_for_memory_is_named(tokenizer):
    """By its number among all lines, across chunks and parts."""

    class Small:
        def search(self, sources, limits, options, few, stop=None):
            if any(len(source) > 20 for source in sources):
                raise MemoryError
            return [[Hypothesis([4], -1.0, -1.0, [-1.0])] for _ in sources]

        begin = search

    translator = TextTranslator(Small(), tokenizer)
    lines = ["A dog runs .", "Two men .", "", "A man . " * 3, "The dog sees the men . " * 9]
    with pytest.raises(UserError, match=r"^text 5: not enough memory"):
        translator.translate(lines)
    with pytest.raises(UserError, match=r"^line 5: not enough memory"):
        list(translator.translate_lines(lines, chunk_lines=2))


def test_all_models_read_as_many_lines_at_a_time():
    methods = [kind.translate_lines for kind in (TextTranslator, Translator, ClusterModel)]
    assert len({inspect.signature(method).parameters["chunk_lines"].default for method in methods}) == 1
