"""A draft, good or bad, changes only the number of steps."""

import pytest
import torch

from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.contract import SpecialIds
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.drafts import CopyDraft, MemoryDraft, ModelDraft, continuation
from headwise.runtime.search.engine import decode_tokens
from headwise.runtime.search.request import SearchRequest
from headwise.runtime.search.speculative import speculate, speculative_search
from headwise.runtime.search.translator import TextTranslator
from headwise.text.tokens.tokenizer import Tokenizer

SPECIAL = SpecialIds()
SOURCES = [[5, 9, 4], [7], [4, 4, 8, 10, 6, 5, 11], [11, 9, 6]]


def search(model, source, draft, config, prefix=(), max_len=None):
    return speculative_search(engine_of(model), SearchRequest([source], [prefix], config, SPECIAL, max_len), draft)[0][
        0
    ]


class Fixed:
    """Guesses a given text."""

    def __init__(self, text):
        self.text = text

    def start(self, source):
        return lambda written, count: self.text[len(written) : len(written) + count]


def random_model(seed, **shape):
    torch.manual_seed(seed)
    shape = {"vocab_size": 12, "d_model": 16, "d_ff": 32, "n_heads": 2, "dropout": 0.0} | shape
    model = build_model(TransformerConfig(n_encoder_layers=1, n_decoder_layers=2, **shape))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)  # decided predictions, that depend on what was written
    return model.eval()


@pytest.fixture(params=["model", "float32", "int8", "bfloat16"], scope="module")
def model(request):
    if request.param == "model":  # in float64: how float32 rounds several positions at once hangs on the processor
        return random_model(1).double()
    return prepare_for_inference(random_model(1), request.param)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("length", "settings"),
    [
        (1, {}),
        (3, {}),
        (20, {}),
        (3, {"no_repeat_ngram": 2}),
        (3, {"repetition_penalty": 1.6}),
        (3, {"min_length_factor": 1.5}),
    ],
)
def test_output_is_that_of_greedy_search(model, settings, length):
    config = SearchSettings(beam_size=1, draft_length=length, max_length_extra=4, **settings)
    expected = [ranked[0] for ranked in decode_tokens(engine_of(model), SOURCES, config, SPECIAL)]
    assert len({tuple(h.tokens) for h in expected}) > 1
    longest = max((h.tokens for h in expected), key=len)
    half_right = Fixed([t if i % 3 else 4 for i, t in enumerate(longest)])
    drafts = [
        CopyDraft(),
        Fixed([]),
        Fixed([4] * 99),
        half_right,
        Fixed(longest),
        ModelDraft(engine_of(model), SPECIAL),
        ModelDraft(engine_of(prepare_for_inference(random_model(2), "float32")), SPECIAL),
    ]
    drafts.append(MemoryDraft((source, h.tokens) for source, h in zip(SOURCES, expected, strict=True)))
    for draft in drafts:
        for source, hypothesis in zip(SOURCES, expected, strict=True):
            found = search(model, source, draft, config)
            assert found.tokens == hypothesis.tokens
            assert found.token_log_probs == pytest.approx(hypothesis.token_log_probs, abs=1e-4)
            assert found.score == pytest.approx(hypothesis.score, abs=1e-4)


def test_forced_prefix(model):
    config = SearchSettings(beam_size=1, draft_length=2)
    prefix = [9, 9, 4, 10]
    expected = decode_tokens(engine_of(model), SOURCES[:1], config, SPECIAL, [prefix])[0][0]
    found = search(model, SOURCES[0], Fixed([4] * 20), config, prefix)
    assert found.tokens == expected.tokens
    assert found.tokens[:4] == prefix


def written(model, draft, config):
    request = SearchRequest([SOURCES[2]], [[]], config, SPECIAL)
    return [best.token for best in speculate(engine_of(model), request, draft)]


def test_correct_guesses_save_steps():
    model = random_model(1)
    config = SearchSettings(beam_size=1, draft_length=4)
    text = decode_tokens(engine_of(model), SOURCES[2:3], config, SPECIAL)[0][0].tokens
    calls, decode = [], model.decode
    model.decode = lambda tgt_in, *rest: calls.append(tgt_in.size(1)) or decode(tgt_in, *rest)
    for draft, most in (
        (Fixed(text), len(text) // 5 + 1),
        (ModelDraft(engine_of(random_model(1)), SPECIAL), len(text) // 5 + 1),
    ):
        calls.clear()
        assert written(model, draft, config) == [*text, SPECIAL.eos_id]
        assert len(calls) <= most
    calls.clear()
    written(model, Fixed([]), config)
    assert len(calls) >= len(text)


def test_the_limit_of_learned_positions():
    model = random_model(3, positions="learned", max_len=12)
    config = SearchSettings(beam_size=1, draft_length=8)
    expected = decode_tokens(engine_of(model), SOURCES, config, SPECIAL, max_len=12)
    for source, ranked in zip(SOURCES, expected, strict=True):
        found = search(model, source, Fixed([4] * 50), config, max_len=12)
        assert found.tokens == ranked[0].tokens


@pytest.mark.parametrize(
    "settings", [{"beam_size": 4}, {"beam_size": 1, "sample": True}, {"beam_size": 1, "shortlist": True}]
)
def test_unsupported_settings_are_refused(settings):
    with pytest.raises(UserError, match="draft"):
        search(random_model(1), [5], CopyDraft(), SearchSettings(**settings))


def test_a_stream_is_checked_as_a_search_is():
    with pytest.raises(UserError, match="draft"):
        written(random_model(1), CopyDraft(), SearchSettings(beam_size=4))


def test_a_stream_starts_after_forced_tokens(model):
    config, special = SearchSettings(beam_size=1, draft_length=2), SpecialIds(forced=(9, 4))
    expected = decode_tokens(engine_of(model), SOURCES[:1], config, special)[0][0].tokens
    request = SearchRequest(SOURCES[:1], [[]], config, special)
    found = [best.token for best in speculate(engine_of(model), request, Fixed([9, 4, 4, 4]))]
    assert found in (expected, [*expected, special.eos_id]) and len(found) > 2


def test_caches_without_truncate_are_refused():
    model = random_model(1)
    start = model.start_cache
    model.start_cache = lambda *a: type("Forward", (), {**vars(start(*a)), "length": 0})()
    config = SearchSettings(beam_size=1)
    for network, draft in ((model, CopyDraft()), (random_model(1), ModelDraft(engine_of(model), SPECIAL))):
        with pytest.raises(UserError, match="cannot be truncated"):
            search(network, [5], draft, config)


def test_translator_and_stream_with_a_draft():
    tokenizer = Tokenizer.train(
        ["A dog runs across the field .", "Two men talk ."] * 20, TranslationData(vocab_size=300)
    )
    model = random_model(4, vocab_size=tokenizer.vocab_size)
    translator = TextTranslator(engine_of(model), tokenizer, SearchSettings(beam_size=4, max_length_extra=5))
    texts = ["A dog runs .", "", "Two men talk ."]
    plain = [t.text for t in translator.translate(texts, beam_size=1)]
    assert [t.text for t in translator.translate(texts, draft=CopyDraft())] == plain
    assert ["".join(translator.stream(text, draft=CopyDraft())) for text in texts] == plain
    with pytest.raises(UserError, match="beam_size"):
        translator.translate(texts, draft=CopyDraft(), beam_size=4)


def test_translation_memory_finds_the_most_similar_source():
    memory = MemoryDraft([([1, 2, 3], [10]), ([1, 2, 4], [20]), ([1, 9], [30])])
    assert memory.most_similar([1, 2, 4]) == [20]
    assert memory.most_similar([9]) == [30]
    assert memory.most_similar([77]) is None
    assert memory.start([77, 78])([77], 3) == [78]


def test_continuation_prefers_the_longest_match():
    text = [1, 2, 3, 9, 2, 3, 4]
    assert continuation(text, [9, 2, 3], 1) == [4]
    assert continuation(text, [1, 2, 3], 2) == [9, 2]
    assert continuation(text, [5], 2) == continuation(text, [], 2) == []
