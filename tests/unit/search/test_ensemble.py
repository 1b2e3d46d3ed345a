"""Ensembles: the mean of log-probabilities, for all kinds of models and searches."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any

import numpy as np
import pytest
import torch

from headwise.config.settings import SearchSettings, from_dict
from headwise.contract import EncoderDecoder, SpecialIds
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.search.ensemble import AveragedNetworks
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.drafts import CopyDraft
from headwise.runtime.search.engine import begin, decode_tokens, greedy_steps
from headwise.runtime.search.request import SearchRequest
from headwise.runtime.search.speculative import speculative_search

VOCAB, EOS = 11, 2
SHORT = SearchSettings(max_length_factor=1.0, max_length_extra=1)
SOURCES = [[5], [4, 9, 10, 7, 7, 6], [8, 4], [], [6, 5, 9]]
SHAPES: dict[str, dict[str, Any]] = {
    "transformer": {"d_ff": 24, "n_heads": 2},
    "wide": {"d_model": 24, "d_ff": 24, "n_heads": 3, "n_decoder_layers": 2, "norm_position": "pre"},
    "recurrent": {"architecture": "recurrent", "cell": "lstm", "attention": "dot", "bidirectional": False},
    "conv": {"architecture": "conv", "positions": "learned", "max_len": 24},
}
SEARCHES: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 3},
    {"sample": True, "n_best": 2},
    {"beam_size": 2, "no_repeat_ngram": 2},
]


def small(kind: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    shape = {"vocab_size": VOCAB, "d_model": 16, "dropout": 0.0, "n_encoder_layers": 1, "n_decoder_layers": 1}
    model = build_network(from_dict({"model": {**shape, **SHAPES[kind]}}, "test").model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model.eval()


def geometric(members: Sequence[Any], source: Sequence[int], words: Sequence[int], may: Sequence[int] = ()) -> Any:
    """Log-probabilities of all tokens, or of those in `may`, after each prefix of `words`, by the definition.

    Without a cache, a search or padding.
    """
    src = torch.tensor([[*source, EOS]])
    mask, given = torch.ones_like(src, dtype=torch.bool), torch.tensor([[1, *words]])
    with torch.no_grad():
        each = [m.logits(m.decode(given, m.encode(src, mask), mask)).log_softmax(-1)[0] for m in members]
    everything = torch.stack(each).double().mean(0).log_softmax(-1)
    return everything[:, list(may)].log_softmax(-1) if may else everything


MIXED = ["transformer", "wide", "recurrent", "conv"]


@pytest.fixture
def members() -> list[Any]:
    return [small(kind, seed) for seed, kind in enumerate(MIXED)]


@pytest.mark.parametrize("settings", SEARCHES)
def test_log_probabilities_are_the_normalised_mean(members: list[Any], settings: dict[str, Any]) -> None:
    """Sentences of a batch end at different steps, so that all caches have been reordered."""
    ensemble = AveragedNetworks(members)
    assert isinstance(ensemble, EncoderDecoder)
    found = decode_tokens(engine_of(ensemble), SOURCES, replace(SHORT, **settings))
    assert len({len(h.tokens) for h in chain(*found)}) > 1
    for source, ranked in zip(SOURCES, found, strict=True):
        for h in ranked if source else ():
            wanted = geometric(members, source, h.tokens)
            written = [*h.tokens, EOS][: len(h.token_log_probs)]
            assert h.token_log_probs == pytest.approx([float(wanted[i, t]) for i, t in enumerate(written)], abs=1e-4)
            assert h.log_prob == pytest.approx(sum(h.token_log_probs), abs=1e-4)


def test_a_wide_beam_finds_the_best_of_all_outputs(members: list[Any]) -> None:
    ensemble, config = AveragedNetworks(members[1:3]), replace(SHORT, beam_size=64, length_penalty=0.0)
    (best, *_), source = decode_tokens(engine_of(ensemble), [[6, 9]], config)[0], [6, 9]

    def log_prob(words: tuple[int, ...]) -> float:
        wanted = geometric(members[1:3], source, words)
        ended = [*words, EOS][:4]
        return sum(float(wanted[i, token]) for i, token in enumerate(ended))

    every = (words for n in range(4) for words in product(range(4, VOCAB), repeat=n))
    outputs = [words for words in every if len(words) < 4]
    assert tuple(best.tokens) == max(outputs, key=log_prob) or len(best.tokens) == 4


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("settings", SEARCHES)
def test_an_ensemble_of_identical_models_is_that_model(kind: str, settings: dict[str, Any]) -> None:
    """Bit-identical for two, since (x + x) / 2 = x; up to rounding for three."""
    model, config = small(kind), replace(SHORT, **settings)
    alone = decode_tokens(engine_of(model), SOURCES, config)
    assert decode_tokens(engine_of(AveragedNetworks([model])), SOURCES, config) == alone
    assert decode_tokens(engine_of(AveragedNetworks([model, model])), SOURCES, config) == alone
    thrice = decode_tokens(engine_of(AveragedNetworks([model] * 3)), SOURCES, config)
    assert [h.log_prob for h in chain(*thrice)] == pytest.approx([h.log_prob for h in chain(*alone)], abs=1e-4)


def test_the_order_changes_only_rounding(members: list[Any]) -> None:
    config = replace(SHORT, beam_size=3, n_best=3)
    found = decode_tokens(engine_of(AveragedNetworks(members)), SOURCES, config)
    turned = decode_tokens(engine_of(AveragedNetworks(members[::-1])), SOURCES, config)
    assert [h.tokens for h in chain(*turned)] == [h.tokens for h in chain(*found)]
    assert [h.score for h in chain(*turned)] == pytest.approx([h.score for h in chain(*found)], abs=1e-4)
    assert [h.tokens for h in chain(*found)] != [
        h.tokens for h in chain(*decode_tokens(engine_of(members[0]), SOURCES, config))
    ]


def test_prefixes_are_continued(members: list[Any]) -> None:
    prefixes = [[7], [], [4, 4, 8], [], [9]]
    for beam_size in (1, 3):
        found = decode_tokens(
            engine_of(AveragedNetworks(members)), SOURCES, replace(SHORT, beam_size=beam_size), prefixes=prefixes
        )
        assert all(f[0].tokens[: len(p)] == p for f, p, source in zip(found, prefixes, SOURCES, strict=True) if source)
    forced = found[2][0]
    wanted = geometric(members, SOURCES[2], forced.tokens)
    assert forced.token_log_probs[:3] == pytest.approx([float(wanted[i, t]) for i, t in enumerate([4, 4, 8])], abs=1e-4)


def test_a_shortlist_normalises_over_its_candidates(members: list[Any]) -> None:
    table = CandidateTable(np.array([4, 5]), np.tile([6, 7], (VOCAB, 1)))
    for settings in SEARCHES[:3]:
        config = replace(SHORT, **settings)
        found = decode_tokens(engine_of(AveragedNetworks(members)), SOURCES, config, shortlist=table)
        for source, ranked in zip(SOURCES, found, strict=True):
            allowed = sorted({0, 1, 2, 3, 4, 5, 6, 7, *source})
            for h in ranked if source else ():
                wanted = geometric(members, source, h.tokens, allowed)
                written = [*h.tokens, EOS][: len(h.token_log_probs)]
                expected = [float(wanted[i, allowed.index(token)]) for i, token in enumerate(written)]
                assert h.token_log_probs == pytest.approx(expected, abs=1e-4)


def test_a_stream_and_a_draft_are_greedy_search(members: list[Any]) -> None:
    ensemble, config = AveragedNetworks(members[:2]), replace(SHORT, beam_size=1)
    for source, (best,) in zip(SOURCES, decode_tokens(engine_of(ensemble), SOURCES, config), strict=True):
        if source:
            engine, request = engine_of(ensemble), SearchRequest([source], [[]], config, SpecialIds())
            steps = [one.token for one in greedy_steps(begin(engine, request))]
            assert [token for token in steps if token != EOS] == best.tokens
            assert speculative_search(engine, request, CopyDraft())[0][0].tokens == best.tokens
    with pytest.raises(UserError, match="cannot be truncated"):
        request = SearchRequest([[5, 6]], [[]], config, SpecialIds())
        speculative_search(engine_of(AveragedNetworks(members)), request, CopyDraft())


def test_members_are_in_evaluation_mode_during_search_only(members: list[Any]) -> None:
    for member in members:
        member.train()
    ensemble = AveragedNetworks(members)
    found = decode_tokens(engine_of(ensemble), SOURCES, SHORT)
    assert ensemble.training and all(member.training for member in members)
    assert found == decode_tokens(engine_of(ensemble.train(False)), SOURCES, SHORT)


def test_non_finite_outputs_of_a_member_are_an_error(members: list[Any]) -> None:
    with torch.no_grad():
        next(members[1].parameters()).fill_(math.nan)
    with pytest.raises(UserError, match="not finite"):
        decode_tokens(engine_of(AveragedNetworks(members)), SOURCES, SHORT)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_members_on_different_devices(members: list[Any]) -> None:
    config = replace(SHORT, beam_size=3)
    together = decode_tokens(engine_of(AveragedNetworks(members)), SOURCES, config)
    apart = decode_tokens(
        AveragedNetworks([member.to(("cpu", "cuda")[i % 2]) for i, member in enumerate(members)]), SOURCES, config
    )
    assert [h.tokens for h in chain(*apart)] == [h.tokens for h in chain(*together)]
