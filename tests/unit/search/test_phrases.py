"""Outputs with required phrases, compared with enumeration, on step functions without a model."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from headwise.contract import SearchOptions, length_penalty
from headwise.core.search import beam_search
from headwise.pytorch.search.phrases import met, phrase_search, progress, shares
from headwise.runtime.search.request import padded

BOS, EOS = 0, 1  # the tokens 2, 3, ... are words
PLAIN = SearchOptions(bos_id=BOS, eos_id=EOS, suppressed=(BOS,))


@pytest.fixture
def run(table_step, start_cache, make_limits):
    """The hypotheses for sentences with these numbers and phrases."""

    def run(sentences, longest, phrases, options, vocab, prefixes=None):
        limits = replace(make_limits(longest, None, prefixes), phrases=torch.from_numpy(padded(phrases)))
        return phrase_search(table_step(vocab), start_cache(list(sentences)), limits, options)

    return run


def contains(words, phrase):
    return any(words[i : i + len(phrase)] == phrase for i in range(len(words) - len(phrase) + 1))


def every_output(logits_of, sentence, longest, vocab, phrases, alpha):
    """Outputs with all phrases, best first."""
    found = []
    for length in range(longest + 1):
        for words in map(list, itertools.product(range(2, vocab), repeat=length)):
            if all(contains(words, phrase) for phrase in phrases):
                written = [*words, EOS] if length < longest else words
                steps = [logits_of(sentence, [BOS, *written[:i]], vocab) for i in range(len(written))]
                log_probs = [torch.tensor(row).log_softmax(-1).tolist() for row in steps]
                total = sum(row[token] for row, token in zip(log_probs, written, strict=True))
                found.append((total / length_penalty(len(written), alpha), words))
    return sorted(found, key=lambda x: -x[0])


PHRASES = [[[3]], [[2, 3], [3]], [[3, 3, 2]], [[2, 2], [3, 3]], [[3, 2, 3]], [[2], [3], [4]]]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_wide_beam_finds_the_best_of_all_outputs_with_the_phrases(run, logits_of, alpha):
    options = replace(PLAIN, beam_size=300, n_best=4, length_penalty=alpha)
    longest = [5, 4, 5, 5, 4, 4]
    found = run(range(6), longest, PHRASES, options, 5)
    for sentence, (hypotheses, most, phrases) in enumerate(zip(found, longest, PHRASES, strict=True)):
        wanted = every_output(logits_of, sentence, most, 5, phrases, alpha)[:4]
        assert [h.tokens for h in hypotheses] == [words for _, words in wanted]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in wanted], abs=1e-5)


@pytest.mark.parametrize("beam_size", [2, 3, 8])
def test_every_output_contains_its_phrases_with_any_beam(run, beam_size):
    generator = torch.Generator().manual_seed(beam_size)
    sizes = [[1 + n % 3 for n in range(s % 4)] for s in range(40)]
    phrases = [[torch.randint(2, 30, (n,), generator=generator).tolist() for n in of] for of in sizes]
    found = run(range(40), [20] * 40, phrases, replace(PLAIN, beam_size=beam_size, n_best=2), 30)
    for hypotheses, wanted in zip(found, phrases, strict=True):
        assert hypotheses
        assert all(contains(h.tokens, phrase) for h in hypotheses for phrase in wanted)
    plain = run(range(40), [20] * 40, [[[2]]] * 40, replace(PLAIN, beam_size=beam_size), 30)
    assert not all(contains(h.tokens, p) for of, ph in zip(plain, phrases, strict=True) for h in of for p in ph)


def test_phrases_do_not_affect_other_sentences_of_the_batch(run, table_step, start_cache, make_limits):
    options, longest = replace(PLAIN, beam_size=4, n_best=3), [4 + s % 9 for s in range(12)]
    phrases = [[] if s % 2 else [[5, 3], [4]] for s in range(12)]
    together = run(range(12), longest, phrases, options, 12)
    plain = beam_search(table_step(12), start_cache(list(range(12))), make_limits(longest), options)
    assert together[1::2] == plain[1::2]
    assert together[0::2] != plain[0::2]
    alone = [run([s], [longest[s]], [phrases[s]], options, 12)[0] for s in range(0, 12, 2)]
    assert together[0::2] == alone


def test_phrases_longer_than_the_limit_give_no_hypothesis(run):
    assert run([0], [3], [[[4, 5, 6, 7]]], replace(PLAIN, beam_size=4), 12) == [[]]
    [[best, *_]] = run([0], [4], [[[4, 5, 6, 7]]], replace(PLAIN, beam_size=4), 12)
    assert best.tokens == [4, 5, 6, 7]


def test_a_prefix_may_start_with_a_phrase(run):
    [[best, *_]] = run([0], [9], [[[4, 5]]], replace(PLAIN, beam_size=4), 12, prefixes=[[4, 5, 7]])
    assert best.tokens[:3] == [4, 5, 7]
    assert math.isfinite(best.log_prob)


@pytest.mark.parametrize(
    ("said", "reached", "count"),
    [([], [0, 0], 0), ([4], [1, 0], 1), ([4, 5], [2, 1], 2), ([4, 5, 6], [3, 0], 3), ([4, 5, 7], [0, 2], 2)],
)
def test_progress_of_phrases(said, reached, count):
    """After a mismatch, progress is the longest prefix at the end of the output."""
    phrases, now = torch.tensor([[[4, 5, 6], [5, 7, -1]]]), torch.zeros(1, 1, 2, dtype=torch.long)
    for i in range(len(said)):
        now = progress(now, phrases, torch.tensor([[said[: i + 1]]]))
    assert now.tolist() == [[reached]]
    assert met(now, phrases).tolist() == [[count]]


@pytest.mark.parametrize(
    ("offered", "beam_size", "kept"),
    [
        ([8], 4, [4]),
        ([8, 8], 5, [2, 3]),
        ([8, 1], 4, [3, 1]),
        ([1, 8], 4, [1, 3]),
        ([0, 0, 8], 4, [0, 0, 4]),
        ([8, 8, 8, 8, 8], 4, [0, 0, 0, 0, 4]),
        ([8, 1, 1, 1, 0], 4, [1, 1, 1, 1, 0]),
        ([1, 1, 0], 9, [1, 1, 0]),
        ([0, 0], 4, [0, 0]),
    ],
)
def test_shares_of_banks(offered, beam_size, kept):
    assert shares(offered, beam_size) == kept
