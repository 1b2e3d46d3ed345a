"""Search with a small random Transformer: caches, batches, order, limits."""

import itertools
import math
import os
import pickle
import signal
import time
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.contract import NEVER, Hypothesis, Limits, SpecialIds, length_penalty
from headwise.errors import UserError
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of, to_torch
from headwise.runtime.search.engine import decode_tokens
from headwise.runtime.search.request import (
    SearchRequest,
    TooLarge,
    batches,
    bounds,
    prompt_context,
    random_stream,
    search_options,
)

VOCAB = 10
EOS = 2
SHORT = SearchSettings(max_length_factor=1.0, max_length_extra=1)


@pytest.fixture
def model():
    config = TransformerConfig(
        vocab_size=VOCAB, d_model=8, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=2, dropout=0.5
    )
    model = build_model(config).double()
    with torch.no_grad():  # far from uniform, so that sentences end at different lengths
        model.output.weight *= 2.5
    return model


@pytest.fixture
def sources():
    generator = torch.Generator().manual_seed(1)
    lengths = [1, 6, 4, 0, 5, 2, 3, 8]
    return [torch.randint(4, VOCAB, (n,), generator=generator).tolist() for n in lengths]


def full_log_probs(model, source, words):
    """Log-probabilities after each prefix of `words`, computed without a cache and without padding."""
    src = torch.tensor([[*source, EOS]])
    mask = torch.ones_like(src, dtype=torch.bool)
    with torch.no_grad():
        hidden = model.decode(torch.tensor([[1, *words]]), model.encode(src, mask), mask)
        return model.logits(hidden).log_softmax(-1)[0].tolist()


def log_probs_of(model, source, written):
    """Log-probability of each token of an output."""
    rows = full_log_probs(model, source, written[:-1])
    return [row[token] for row, token in zip(rows, written, strict=True)]


def interrupted(*_):
    raise KeyboardInterrupt


def longest(source):
    return len(source) + 1 + 1


def test_greedy_equals_full_recomputation(model, sources):
    model.eval()
    found = decode_tokens(engine_of(model), sources, replace(SHORT, beam_size=1))
    for source, [h] in zip(sources, found, strict=True):
        words: list[int] = []
        while source and len(words) < longest(source):
            log_probs = full_log_probs(model, source, words)[-1]
            token = max((t for t in range(VOCAB) if t not in (0, 1, 3)), key=lambda t: log_probs[t])
            if token == EOS:
                break
            words.append(token)
        assert h.tokens == words


@pytest.mark.parametrize(
    "settings", [{}, {"beam_size": 1}, {"sample": True, "n_best": 3}, {"beam_size": 6, "n_best": 6}]
)
def test_log_probs_equal_full_recomputation_and_n_best_is_sorted(model, sources, settings):
    found = decode_tokens(engine_of(model), sources, replace(SHORT, **settings))
    model.eval()
    for source, hypotheses in zip(sources, found, strict=True):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses if source else []:
            written = h.tokens if len(h.token_log_probs) == len(h.tokens) else [*h.tokens, EOS]
            expected = log_probs_of(model, source, written)
            assert h.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert h.score == pytest.approx(sum(expected) / length_penalty(len(written), 0.6), abs=1e-5)
            assert len(written) <= longest(source)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 4},
        {"beam_size": 3, "no_repeat_ngram": 2},
        {"beam_size": 2, "min_length_factor": 1.0},
        {"sample": True, "n_best": 3, "seed": 5},
        {"batch_tokens": 30},
    ],
    ids=str,
)
def test_the_prepared_model_gives_the_same_result(model, sources, settings):
    """Covers every cache operation: multiply, reorder, drop sentences, drop rows."""
    config = replace(SHORT, max_length_extra=9, **settings)
    prefixes = [[], [5], [], [], [6, 7], [], [], []]
    model.eval()
    simple = decode_tokens(engine_of(model), sources, config, prefixes=prefixes)
    prepared = decode_tokens(engine_of(prepare_for_inference(model)), sources, config, prefixes=prefixes)
    for wanted, got in zip(simple, prepared, strict=True):
        assert [h.tokens for h in got] == [h.tokens for h in wanted]
        assert [h.score for h in got] == pytest.approx([h.score for h in wanted], abs=1e-6)


def test_wide_beam_equals_enumeration(model):
    model.eval()
    source, config = [5, 7], SearchSettings(beam_size=49, n_best=5, max_length_factor=0.0, max_length_extra=3)
    scores = {}
    for length in range(4):
        for words in itertools.product(range(4, VOCAB), repeat=length):
            written = [*words, EOS] if length < 3 else list(words)
            scores[words] = sum(log_probs_of(model, source, written)) / length_penalty(len(written), 0.6)
    [hypotheses] = decode_tokens(engine_of(model), [source], config)
    expected = sorted(scores, key=lambda words: -scores[words])[:5]
    assert [tuple(h.tokens) for h in hypotheses] == expected


@pytest.mark.parametrize("settings", [{}, {"beam_size": 1}, {"sample": True, "temperature": 2.0}, {"n_best": 4}])
def test_results_do_not_depend_on_order_or_batch(model, sources, settings):
    config = replace(SHORT, **settings)
    together = decode_tokens(engine_of(model), sources, config)
    backwards = decode_tokens(engine_of(model), sources[::-1], config)[::-1]
    small_batches = decode_tokens(engine_of(model), sources, replace(config, batch_tokens=60))
    alone = [decode_tokens(engine_of(model), [source], config)[0] for source in sources]
    tokens = [[h.tokens for h in hypotheses] for hypotheses in together]
    for other in (backwards, small_batches, alone):
        assert tokens == [[h.tokens for h in hypotheses] for hypotheses in other]


def test_float32_gives_the_same_tokens_alone_and_in_a_batch(model, sources):
    model.float()
    together = decode_tokens(engine_of(model), sources, SHORT)
    alone = [decode_tokens(engine_of(model), [source], SHORT)[0] for source in sources]
    assert [[h.tokens for h in x] for x in together] == [[h.tokens for h in x] for x in alone]


def test_an_empty_source_never_reaches_the_model(model):
    model.encode = interrupted
    assert [h.tokens for [h] in decode_tokens(engine_of(model), [[], []], SHORT)] == [[], []]
    assert decode_tokens(engine_of(model), [], SHORT) == []


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_restored_even_after_an_interruption(model, training):
    model.train(training)
    decode_tokens(engine_of(model), [[5]], SHORT)
    assert model.training is training

    model.encode = interrupted
    with pytest.raises(KeyboardInterrupt):
        decode_tokens(engine_of(model), [[5]], SHORT)
    assert model.training is training


def test_other_special_ids(model):
    special = SpecialIds(pad_id=9, bos_id=8, eos_id=7, unk_id=6)
    for [h] in decode_tokens(engine_of(model), [[4, 5, 3], [4]], SHORT, special):
        assert not {6, 7, 8, 9} & set(h.tokens)


def test_prefixes_and_the_longest_output_of_the_model(model, sources):
    filled = [source for source in sources if source]
    prefixes = [[5, 6] if i % 2 else [] for i in range(len(filled))]
    found = decode_tokens(engine_of(model), filled, SHORT, prefixes=prefixes, max_len=7)
    for prefix, [h] in zip(prefixes, found, strict=True):
        assert h.tokens[: len(prefix)] == prefix and len(h.tokens) <= 7


def test_a_batch_that_does_not_fit_is_split(model, sources):
    expected = decode_tokens(engine_of(model), sources, SHORT)
    encode, sizes = model.encode, []

    def small_device(src, src_mask):
        sizes.append(len(src))
        if len(src) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(src, src_mask)

    model.encode = small_device
    assert [[h.tokens for h in ranked] for ranked in decode_tokens(engine_of(model), sources, SHORT)] == [
        [h.tokens for h in ranked] for ranked in expected
    ]
    assert sizes == [7, 3, 1, 2, 4, 2, 2]

    model.encode = lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(UserError, match=r"decode\.beam_size .now 4"):
        decode_tokens(engine_of(model), sources, SHORT)


class Searcher:
    """An engine for a limited batch size, which reverses the source."""

    def __init__(self, most):
        self.most, self.sizes = most, []

    def search(self, sources, limits, options, few, stop=None):
        self.sizes.append(len(sources))
        if len(sources) > self.most:
            raise MemoryError("not enough memory to decode")
        return [[Hypothesis(source[-2::-1], -1.0, -1.0, [-1.0])] for source in sources]

    begin = search


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_too_large_for_the_library_is_split(sources, threads, monkeypatch):
    monkeypatch.setattr("headwise.runtime.search.engine.usable_threads", lambda: threads)
    whole, narrow = Searcher(100), Searcher(2)
    expected = decode_tokens(engine_of(whole), sources, SHORT)
    assert [h.tokens for [h] in expected] == [source[::-1] for source in sources]
    assert decode_tokens(engine_of(narrow), sources, SHORT) == expected
    assert max(whole.sizes) > 2 and narrow.sizes.count(max(whole.sizes)) == 1


def test_a_source_that_occurs_again_is_searched_once():
    engine, again = Searcher(100), [[5, 6], [7], [5, 6], [], [5, 6], []]
    found = decode_tokens(engine_of(engine), again, SHORT)
    assert [h.tokens for [h] in found] == [source[::-1] for source in again] and sum(engine.sizes) == 2
    decode_tokens(engine_of(engine), again, SHORT, prefixes=[[], [], [8], [], [], []])
    assert sum(engine.sizes) == 5  # another prefix, another output
    decode_tokens(engine_of(engine), again, SHORT, phrases=[[], [], [[7]], [], [[7, 8]], []])
    assert sum(engine.sizes) == 9


def test_with_padding_every_source_is_searched(model, monkeypatch):
    encode, sizes = model.encode, []
    monkeypatch.setattr(model, "encode", lambda src, src_mask: (sizes.append(len(src)), encode(src, src_mask))[1])
    decode_tokens(engine_of(model), [[5, 6], [7], [5, 6]], SHORT)
    assert sizes == [3]


def test_without_another_thread_the_caller_decodes(sources, no_more_threads, monkeypatch):
    monkeypatch.setattr("headwise.runtime.search.engine.usable_threads", lambda: 3)
    found = decode_tokens(engine_of(Searcher(2)), sources, SHORT)
    assert [h.tokens for [h] in found] == [source[::-1] for source in sources]


def test_a_source_too_large_for_memory_is_named_with_advice():
    with pytest.raises(
        TooLarge, match=r"text 2: .*--beam-size.*decode\.beam_size .now 4.*--max-source-length"
    ) as caught:
        decode_tokens(engine_of(Searcher(0)), [[], [5, 6]], SHORT)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as from another process


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_the_search(threads, monkeypatch):
    """An exception of a signal handler in the waiting thread ends the other threads."""
    stopped, asked = [], []

    class Endless:
        def search(self, sources, limits, options, few, stop):
            if not asked:
                asked.append(1)
                time.sleep(0.1)  # until it waits
                os.kill(os.getpid(), signal.SIGINT)
            while not stop[0]:
                time.sleep(0.001)
            stopped.append(int(stop[0]))
            raise RuntimeError("stopped")

        begin = search

    monkeypatch.setattr("headwise.runtime.search.engine.usable_threads", lambda: threads)
    with pytest.raises(KeyboardInterrupt):
        decode_tokens(engine_of(Endless()), [[5, 6], [7, 8]], replace(SHORT, batch_tokens=1))
    assert stopped and all(stopped)


def test_a_start_token_that_no_file_names_is_refused():
    with pytest.raises(UserError, match="decoder_start_token_id"):
        _ = SpecialIds(bos_id=NEVER).prompt


def test_limits_grow_with_source_and_prefix():
    config = SearchSettings(max_length_factor=1.5, max_length_extra=3, min_length_factor=0.5)
    limits = bounds(SearchRequest([[7] * 3, [7] * 9], [[], [5, 6]], config, SpecialIds()))
    assert limits.max_length.tolist() == [9, 20] and limits.min_length.tolist() == [2, 5]
    config = SearchSettings(max_length_factor=0.0, max_length_extra=0, min_length_factor=9.0)
    limits = bounds(SearchRequest([[7] * 3], [[]], config, SpecialIds()))
    assert limits.max_length.tolist() == [1] and limits.min_length.tolist() == [0]


def test_limits_of_a_prompt_of_one_token():
    limits = Limits(*np.ones((2, 1), np.int64), np.zeros((1, 0), np.int64), context=prompt_context([[5]]))
    found = to_torch(limits, torch.device("cpu"))
    assert found.context.tolist() == [[5]] and found.max_length.tolist() == [1] and found.phrases is None


def test_non_finite_outputs_are_an_error(model):
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    for search in ({"beam_size": 1}, {"beam_size": 3}, {"sample": True}):
        with pytest.raises(UserError, match="not finite"):
            decode_tokens(engine_of(model), [[5, 6]], replace(SHORT, **search))


IN_THE_SEARCH = {
    "beam_size": 5, "length_penalty": 0.3, "early_stopping": "never", "n_best": 2, "no_repeat_ngram": 2, "sample": True,
    "repetition_penalty": 1.5,
    "max_length_factor": 1.5, "max_length_extra": 9, "min_length_factor": 0.5, "min_length_extra": 2,
    "temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 2,
}  # fmt: skip
AROUND_IT = {"batch_size", "batch_tokens", "stop", "max_source_length", "shortlist", "draft_length", "compute"}


def test_every_setting_is_passed_to_the_compiled_search():
    """When you add a setting, add it here and in `runtime/native/search.c`."""
    assert {field.name for field in fields(SearchSettings)} == {*IN_THE_SEARCH} | AROUND_IT


@pytest.mark.parametrize(("name", "value"), IN_THE_SEARCH.items())
def test_an_engine_gets_the_settings(name, value):
    told = []

    class Told:
        def search(self, sources, limits, options, few, stop=None):
            told.append(f"{limits}" if name.endswith(("_factor", "_extra")) else f"{limits} {options}")
            return [[Hypothesis([4], -1.0, -1.0, [-1.0])] for _ in sources]

        begin = search

    for config in (SearchSettings(), SearchSettings(**{name: value})):
        decode_tokens(engine_of(Told()), [[5, 6, 7, 8]], config)
    assert told[0] != told[1]


def test_an_engine_gets_the_special_ids():
    config = SearchSettings(**IN_THE_SEARCH | {"max_length_factor": 0.0})  # with which `forced_end` applies
    special = SpecialIds(5, 6, 7, 8, (9,), 10, (11,), (12,), (13,), (14,), (((4, 3), 1.0),))
    options = search_options(config, special)
    for record in (config, special):
        assert {f.name: getattr(options, f.name) for f in fields(record)} == vars(record)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 400), st.integers(1, 5))
def test_batches_hold_every_source_once_within_the_budget(lengths, batch_tokens, beam_size):
    cut = list(batches(lengths, SearchSettings(batch_tokens=batch_tokens, beam_size=beam_size)))
    assert sorted(i for batch in cut for i in batch) == [i for i, length in enumerate(lengths) if length]
    for batch in cut:
        size = len(batch) * (max(lengths[i] for i in batch) + 1) * beam_size
        assert size <= batch_tokens or len(batch) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"n_best": 5},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"temperature": 0.0},
        {"temperature": math.nan},
        {"beam_size": 0},
        {"batch_tokens": 0},
        {"max_source_length": 7},
        {"length_penalty": math.inf},
        {"length_penalty": -1.0},
    ],
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        SearchSettings(**settings).check()


def test_random_streams_differ_between_sentences():
    streams = {random_stream(source) for source in ([5], [5, 6], [6, 5], [], [5, 0])}
    assert len(streams) == 5 and all(-(2**63) <= s < 2**63 for s in streams)
