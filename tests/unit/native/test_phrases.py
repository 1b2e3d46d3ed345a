"""The library's search with phrases compared with `pytorch.search.phrases` on the library's steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from unit.native.stepping import by_steps
from unit.native.test_search import native, same

from headwise.config.settings import SearchSettings
from headwise.core.transformer import Transformer
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native.library import library
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.search.engine import decode_tokens

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

Build = Callable[..., Transformer]
Phrases = list[list[list[int]]]
LENGTHS = (3, 5, 4, 5, 2, 3, 6, 1)
CONFIG = SearchSettings(max_length_factor=1.0, max_length_extra=12)


def drawn(count: int, vocab: int) -> Phrases:
    """None for every fourth sentence, up to three phrases of up to three tokens for others, some sharing tokens."""
    sizes = [[1 + (s + n) % 3 for n in range(s % 4)] for s in range(count)]
    return [[torch.randint(4, min(vocab, 8), (n,)).tolist() for n in of] for of in sizes]


def contains(words: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(list(words[i : i + len(phrase)]) == list(phrase) for i in range(len(words)))


@pytest.mark.few(5)
@pytest.mark.parametrize("vocab", [12, 203])
@pytest.mark.parametrize("peak", [0.5, 4.0])
@pytest.mark.parametrize("beam_size", [2, 4, 7])
def test_equals_the_torch_search(build: Build, sentences: Any, beam_size: int, peak: float, vocab: int) -> None:
    model = native(build(peak, vocab_size=vocab, tied_embeddings="none"))
    sources, phrases = sentences(*LENGTHS, vocab=vocab), drawn(len(LENGTHS), vocab)
    for penalty, n_best in ((0.0, beam_size), (0.6, 1)):
        config = replace(CONFIG, beam_size=beam_size, length_penalty=penalty, n_best=n_best)
        found = decode_tokens(engine_of(model), sources, config, phrases=phrases)
        same(found, decode_tokens(engine_of(by_steps(model)), sources, config, phrases=phrases))
        assert all(contains(h.tokens, p) for hs, of in zip(found, phrases, strict=True) for h in hs for p in of)
        plain = decode_tokens(engine_of(model), sources, config)
        assert [found[i] for i in (0, 4)] == [plain[i] for i in (0, 4)], "no phrases, no difference"
        assert found != plain


def test_results_do_not_depend_on_the_batch(build: Build, sentences: Any) -> None:
    model, sources, phrases = native(build(2.0)), sentences(*LENGTHS), drawn(len(LENGTHS), 12)
    config = replace(CONFIG, beam_size=5, n_best=2)
    together = decode_tokens(engine_of(model), sources, config, phrases=phrases)
    backwards = decode_tokens(engine_of(model), sources[::-1], config, phrases=phrases[::-1])
    alone = [
        decode_tokens(engine_of(model), [one], config, phrases=[of])[0]
        for one, of in zip(sources, phrases, strict=True)
    ]
    assert backwards[::-1] == alone == together
    assert decode_tokens(engine_of(model), sources, replace(config, batch_tokens=30), phrases=phrases) == together


def test_prefixes_shortlists_and_repeats_with_phrases(build: Build, sentences: Any) -> None:
    """Tokens of phrases are added to the shortlist."""
    model, sources = native(build(3.0, vocab_size=60)), sentences(*LENGTHS, vocab=60)
    phrases, prefixes = drawn(len(LENGTHS), 60), [[5, 9] if i % 2 else [] for i in range(len(LENGTHS))]
    few = CandidateTable(np.arange(12, 16), np.arange(60)[:, None] % 20 + 20)
    for changes in ({}, {"no_repeat_ngram": 3}, {"min_length_factor": 1.5}, {"repetition_penalty": 1.3}):
        config = replace(CONFIG, beam_size=4, n_best=2, **changes)
        ways: list[dict[str, Any]] = [{"prefixes": prefixes}, {"shortlist": few}]
        for how in (*ways, ways[0] | ways[1]):
            found = decode_tokens(engine_of(model), sources, config, phrases=phrases, **how)
            same(found, decode_tokens(engine_of(by_steps(model)), sources, config, phrases=phrases, **how))
            assert all(contains(hs[0].tokens, p) for hs, of in zip(found, phrases, strict=True) for p in of)
            assert [h.tokens[0] for h in chain(*found[1::2])] == [5] * 8 or "prefixes" not in how


def test_phrases_longer_than_the_limit_give_no_hypothesis(build: Build) -> None:
    model, config = native(build(2.0)), SearchSettings(max_length_factor=0.0, max_length_extra=3)
    phrases = [[[5, 6, 7, 8]], [[5, 6, 7]], []]
    for form in (model, by_steps(model)):
        found = decode_tokens(engine_of(form), [[7], [7], [7]], config, phrases=phrases)
        assert [len(of) for of in found] == [0, 1, 1]
        assert found[1][0].tokens == [5, 6, 7]
