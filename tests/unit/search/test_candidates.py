"""Search over a shortlist: with the whole vocabulary it is full search.

Otherwise each sentence uses only its candidates.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.contract import FREE, SpecialIds
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.inference import prepare_for_inference
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native.library import library
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import decode_tokens

VOCAB = 90  # more than one block of the selection
SPECIAL = {0, 1, 2, 3}
SHORT = SearchSettings(max_length_factor=1.5, max_length_extra=3)
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3},
    {"sample": True, "n_best": 2, "top_k": 5, "seed": 4},
    {"beam_size": 3, "no_repeat_ngram": 2, "min_length_factor": 0.5},
    {"beam_size": 3, "repetition_penalty": 1.5},
]


@pytest.fixture
def model():
    shape = TransformerConfig(vocab_size=VOCAB, d_model=16, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=2)
    model = build_model(shape).double().eval()
    with torch.no_grad():
        model.output.weight *= 2.5
    return model


@pytest.fixture
def sources():
    return [torch.randint(4, VOCAB, (n,)).tolist() for n in (1, 6, 4, 0, 5, 2, 3, 8)]


@pytest.fixture
def few():
    return CandidateTable(np.array([7, 8]), torch.randint(4, VOCAB, (VOCAB, 3)).numpy())


def allowed_ids(table, source):
    ended = [*source, 2]
    return SPECIAL | set(source) | set(table.frequent.tolist()) | set(table.likely[ended].flatten().tolist())


def outcome(found):
    return [[h.tokens for h in ranked] for ranked in found], [[h.score for h in ranked] for ranked in found]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_shortlist_of_the_whole_vocabulary_is_full_search(model, sources, search, prepared):
    model = prepare_for_inference(model) if prepared else model
    everything = CandidateTable(np.arange(VOCAB), np.full((VOCAB, 1), 5))
    prefixes = [[5, 9] if i % 3 == 0 and source else [] for i, source in enumerate(sources)]
    config = replace(SHORT, **search)
    tokens, scores = outcome(decode_tokens(engine_of(model), sources, config, prefixes=prefixes))
    ours, our_scores = outcome(
        decode_tokens(engine_of(model), sources, config, prefixes=prefixes, shortlist=everything)
    )
    assert ours == tokens
    for row, expected in zip(our_scores, scores, strict=True):
        assert row == pytest.approx(expected, abs=1e-6)


@pytest.mark.few(4)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_sentence_uses_only_its_candidates_in_any_batch(model, sources, few, search, prepared):
    model = prepare_for_inference(model) if prepared else model
    config = replace(SHORT, **search)
    together, scores = outcome(decode_tokens(engine_of(model), sources, config, shortlist=few))
    for source, ranked in zip(sources, together, strict=True):
        assert all(set(tokens) <= allowed_ids(few, source) for tokens in ranked)
    backwards, _ = outcome(decode_tokens(engine_of(model), sources[::-1], config, shortlist=few))
    small, _ = outcome(decode_tokens(engine_of(model), sources, replace(config, batch_tokens=60), shortlist=few))
    alone = [outcome(decode_tokens(engine_of(model), [source], config, shortlist=few)) for source in sources]
    assert together == backwards[::-1] == small == [tokens[0] for tokens, _ in alone]
    for row, (_, expected) in zip(scores, alone, strict=True):
        assert row == pytest.approx(expected[0], rel=1e-5)
    full, _ = outcome(decode_tokens(engine_of(model), sources, config))
    assert together != full


@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
@pytest.mark.parametrize("search", SEARCHES[:2], ids=str)
def test_int8_gives_the_same_alone_and_in_a_batch(model, sources, few, search):
    model = prepare_for_inference(model.float(), "int8")
    config = replace(SHORT, **search)
    together, _ = outcome(decode_tokens(engine_of(model), sources, config, shortlist=few))
    assert together == [
        outcome(decode_tokens(engine_of(model), [source], config, shortlist=few))[0][0] for source in sources
    ]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_prefix_need_not_be_in_the_shortlist(model, few, beam_size):
    sources = [[5, 6, 7], [8, 9]]
    foreign = next(token for token in range(4, VOCAB) if all(token not in allowed_ids(few, s) for s in sources))
    config = replace(SHORT, beam_size=beam_size)
    first, second = decode_tokens(engine_of(model), sources, config, prefixes=[[foreign, foreign], []], shortlist=few)
    assert all(h.tokens[:2] == [foreign, foreign] for h in first)
    assert all(foreign not in h.tokens for h in second)


def test_candidates_of_each_sentence_fill_whole_blocks():
    table = CandidateTable(np.array([7]), np.array([[token, 89 - token] for token in range(90)]))
    found = table.candidates([[10, 11, 2], [12, 2]], [[], [20]], (1, 2, 3))
    assert len(found.ids) == 64 and (np.diff(found.ids) > 0).all()
    sets = [set(found.ids[row].tolist()) for row in found.allowed]
    assert sets == [{1, 2, 3, 7, 10, 11, 79, 78, 87}, {1, 2, 3, 7, 12, 77, 87, 20}]
    assert found.ids[found.columns(np.array([20, 77]))].tolist() == [20, 77]
    assert found.columns(np.array([[FREE, 88, 10**6]])).tolist() == [[FREE] * 3]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_biases_of_sequences_on_a_shortlist(model, sources, few, beam_size):
    """Tokens that are not on the shortlist are in no output, so neither are sequences that have them."""
    biases = (((7,), 2.0), ((7, 7), -9.0), ((1, 8), 3.0), ((50, 8), 9.0), ((8, 51), 9.0))
    config = replace(SHORT, beam_size=beam_size, repetition_penalty=1.2)
    special = SpecialIds(sequence_bias=biases)
    found, wanted, plain = (
        [h.tokens for (h, *_) in decode_tokens(engine_of(form), sources, config, ids, shortlist=few)]
        for form, ids in ((prepare_for_inference(model), special), (model, special), (model, SpecialIds()))
    )
    assert found == wanted != plain
