"""Search with every variant: greedy, beam, sampling, prefixes, shortlist, streaming; int8 is refused."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_readers import score_pairs_with_torch

from headwise.config.settings import SearchSettings
from headwise.contract import EncoderDecoder, SpecialIds, length_penalty
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import Network, decoding_variants
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import begin, decode_tokens, greedy_steps
from headwise.runtime.search.request import SearchRequest

VOCAB, EOS = 11, 2
SHORT = SearchSettings(max_length_factor=1.0, max_length_extra=1)
SOURCES = [[5], [4, 9, 10, 7, 7, 6], [8, 4], [], [6, 5, 9]]


def full_log_probs(model: Network, source: Sequence[int], words: Sequence[int]) -> list[list[float]]:
    """Log-probabilities after each prefix of `words`, computed without a cache and without padding."""
    src = torch.tensor([[*source, EOS]])
    mask = torch.ones_like(src, dtype=torch.bool)
    with torch.no_grad():
        hidden = model.decode(torch.tensor([[1, *words]]), model.encode(src, mask), mask)
        return model.logits(hidden).log_softmax(-1)[0].tolist()


def greedily(model: Network, source: Sequence[int]) -> list[int]:
    words: list[int] = []
    while source and len(words) < len(source) + 2:
        log_probs = full_log_probs(model, source, words)[-1]
        token = max((t for t in range(VOCAB) if t not in (0, 1, 3)), key=lambda t: log_probs[t])
        if token == EOS:
            break
        words.append(token)
    return words


def test_it_is_an_encoder_decoder(model: Network) -> None:
    assert isinstance(model, EncoderDecoder)


def test_greedy_equals_full_recomputation(model: Network) -> None:
    found = decode_tokens(engine_of(model), SOURCES, replace(SHORT, beam_size=1))
    assert [h.tokens for [h] in found] == [greedily(model, source) for source in SOURCES]


@pytest.mark.parametrize("settings", [{"n_best": 4}, {"sample": True, "n_best": 3}], ids=str)
def test_log_probs_equal_full_recomputation(model: Network, settings: dict) -> None:
    for source, hypotheses in zip(
        SOURCES, decode_tokens(engine_of(model), SOURCES, replace(SHORT, **settings)), strict=True
    ):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses if source else []:
            written = h.tokens if len(h.token_log_probs) == len(h.tokens) else [*h.tokens, EOS]
            rows = full_log_probs(model, source, written[:-1])
            expected = [row[token] for row, token in zip(rows, written, strict=True)]
            assert h.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert h.score == pytest.approx(sum(expected) / length_penalty(len(written), 0.6), abs=1e-5)


@pytest.mark.parametrize("settings", [{}, {"sample": True, "n_best": 2}], ids=str)
def test_results_do_not_depend_on_batch_or_order(model: Network, settings: dict) -> None:
    config = replace(SHORT, **settings)
    together = decode_tokens(engine_of(model), SOURCES, config)
    backwards = decode_tokens(engine_of(model), SOURCES[::-1], config)[::-1]
    alone = [decode_tokens(engine_of(model), [source], config)[0] for source in SOURCES]
    tokens = [[h.tokens for h in hypotheses] for hypotheses in together]
    for other in (backwards, alone):
        assert tokens == [[h.tokens for h in hypotheses] for hypotheses in other]


@pytest.mark.parametrize("variant", ["luong", "conv"])
def test_wide_beam_equals_enumeration(variant: str, build_small: Callable[..., Network]) -> None:
    model, source = build_small(variant), [5, 7]
    config = SearchSettings(beam_size=64, n_best=5, max_length_factor=0.0, max_length_extra=2)
    scores = {}
    for length in range(3):
        for words in itertools.product(range(4, VOCAB), repeat=length):
            written = [*words, EOS] if length < 2 else list(words)
            rows = full_log_probs(model, source, written[:-1])
            total = sum(row[token] for row, token in zip(rows, written, strict=True))
            scores[words] = total / length_penalty(len(written), 0.6)
    [hypotheses] = decode_tokens(engine_of(model), [source], config)
    assert [tuple(h.tokens) for h in hypotheses] == sorted(scores, key=lambda words: -scores[words])[:5]


def test_prefixes_are_continued(model: Network) -> None:
    filled = [source for source in SOURCES if source]
    found = decode_tokens(engine_of(model), filled, SHORT, prefixes=[[9, 4]] * len(filled))
    assert all(h.tokens[:2] == [9, 4] for [h] in found)


def test_shortlists(model: Network) -> None:
    everything = CandidateTable(np.arange(VOCAB), np.zeros((VOCAB, 0)))
    few = CandidateTable(np.array([4]), np.zeros((VOCAB, 0)))
    plain = decode_tokens(engine_of(model), SOURCES, SHORT)
    offered = decode_tokens(engine_of(model), SOURCES, SHORT, shortlist=everything)
    assert [[h.tokens for h in x] for x in offered] == [[h.tokens for h in x] for x in plain]
    for source, [h] in zip(SOURCES, decode_tokens(engine_of(model), SOURCES, SHORT, shortlist=few), strict=True):
        assert {*h.tokens} <= {4, *source}


def test_a_stream_is_greedy_search(model: Network) -> None:
    for source in [source for source in SOURCES if source]:
        request = SearchRequest([source], [[]], replace(SHORT, beam_size=1), SpecialIds())
        steps = [one.token for one in greedy_steps(begin(engine_of(model), request))]
        assert [token for token in steps if token != SpecialIds().eos_id] == greedily(model, source)


def test_scores_are_those_of_a_full_pass(model: Network) -> None:
    pairs = [(source, [7, 4, 5][: len(source)]) for source in SOURCES if source]
    for (source, target), score in zip(pairs, score_pairs_with_torch(model, pairs), strict=True):
        rows = full_log_probs(model, source, target)
        expected = [row[token] for row, token in zip(rows, [*target, EOS], strict=True)]
        assert score.token_log_probs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("compute", ["int8", "bfloat16", "float16"])
def test_other_precisions_are_refused(model: Network, compute: str) -> None:
    form = decoding_variants(model)
    assert form("float32") is form("auto") is form("torch") is model
    with pytest.raises(UserError, match=rf"^decode.compute = {compute} is for the Transformer; .*$"):
        form(compute)


def test_non_finite_outputs_are_an_error(model: Network) -> None:
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    with pytest.raises(UserError, match="not finite"):
        decode_tokens(engine_of(model), [[5, 6]], SHORT)
