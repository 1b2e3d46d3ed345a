"""Search compared with exhaustive enumeration and a simple reference, on step functions without a model."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from headwise.contract import Hypothesis, SearchOptions, length_penalty
from headwise.core.extensions.sampling import sample
from headwise.core.search import beam_search, greedy

BOS, EOS = 0, 1  # the tokens 2, 3, ... are words
PLAIN = SearchOptions(bos_id=BOS, eos_id=EOS, suppressed=(BOS,))


@pytest.fixture
def word_log_probs(logits_of):
    """Log-probabilities of the next token after the words of a sentence, without the start token."""

    def log_probs(sentence, words, vocab):
        values = torch.tensor(logits_of(sentence, [BOS, *words], vocab)).log_softmax(-1).tolist()
        values[BOS] = -math.inf
        return values

    return log_probs


@pytest.fixture
def run(table_step, start_cache, make_limits):
    """Searches for sentences with these numbers; returns the hypotheses and the cache."""

    def run(search, sentences, longest, options, vocab=3, **limits):
        cache = start_cache(list(sentences))
        found = search(table_step(vocab), cache, replace(make_limits(longest), **limits), options)
        return found, cache

    return run


def all_outputs(log_probs, sentence, longest, vocab, alpha):
    """Every output with its score: words and an end token, or `longest` words without one."""
    for length in range(longest + 1):
        for words in itertools.product(range(2, vocab), repeat=length):
            steps = [log_probs(sentence, words[:i], vocab)[word] for i, word in enumerate(words)]
            if length < longest:
                steps.append(log_probs(sentence, words, vocab)[EOS])
            yield list(words), sum(steps) / length_penalty(len(steps), alpha)


def reference_beam(log_probs, sentence, longest, vocab, options):
    """Reference beam search: one sentence, plain lists, no early stopping."""
    live, finished = [(0.0, [])], []
    for length in range(1, longest + 1):
        extended = [
            (total + value, [*words, token])
            for total, words in live
            for token, value in enumerate(log_probs(sentence, words, vocab))
        ]
        ranked = sorted(extended, key=lambda x: -x[0])[: 2 * options.beam_size]
        ends = [x for x in ranked if x[1][-1] == EOS or length == longest]
        finished += [(total / length_penalty(length, options.length_penalty), words) for total, words in ends]
        live = [x for x in ranked if x not in ends][: options.beam_size]
    finished = [x for x in sorted(finished, key=lambda x: -x[0]) if x[0] > -math.inf]
    return [([w for w in words if w != EOS], score) for score, words in finished[: options.n_best]]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("vocab", [3, 4])
def test_wide_beam_finds_what_enumeration_finds(run, word_log_probs, alpha, vocab):
    longest = [5, 1, 4, 3]
    options = replace(PLAIN, beam_size=81, n_best=7, length_penalty=alpha)
    found, _ = run(beam_search, range(4), longest, options, vocab)
    for sentence, hypotheses in enumerate(found):
        every = sorted(all_outputs(word_log_probs, sentence, longest[sentence], vocab, alpha), key=lambda x: -x[1])
        assert [h.tokens for h in hypotheses] == [words for words, _ in every[:7]]
        assert [h.score for h in hypotheses] == pytest.approx([score for _, score in every[:7]], abs=1e-5)


@pytest.mark.parametrize("beam_size", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_narrow_beam_equals_reference_without_early_stopping(run, word_log_probs, beam_size, alpha):
    options = replace(PLAIN, beam_size=beam_size, n_best=2, length_penalty=alpha)
    longest = [8, 3, 12, 1, 6, 9, 7, 2, 12, 5, 4, 10]
    found, _ = run(beam_search, range(12), longest, options, vocab=5)
    for sentence, hypotheses in enumerate(found):
        expected = reference_beam(word_log_probs, sentence, longest[sentence], 5, options)
        assert [h.tokens for h in hypotheses] == [words for words, _ in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected], abs=1e-5)


def greedy_by_hand(log_probs, sentence, longest, vocab):
    words: list[int] = []
    while len(words) < longest:
        values = log_probs(sentence, words, vocab)
        token = max(range(vocab), key=lambda t: values[t])
        if token == EOS:
            break
        words.append(token)
    return words


def test_beam_size_one_is_greedy(run, word_log_probs):
    longest = [9] * 20
    options = replace(PLAIN, beam_size=1)
    by_beam, _ = run(beam_search, range(20), longest, options, vocab=6)
    by_greedy, _ = run(greedy, range(20), longest, options, vocab=6)
    assert by_beam == by_greedy
    assert [h.tokens for [h] in by_greedy] == [greedy_by_hand(word_log_probs, s, 9, 6) for s in range(20)]


def test_log_probs_of_tokens_sum_to_the_hypothesis(run, word_log_probs):
    found, _ = run(beam_search, range(6), [7] * 6, replace(PLAIN, n_best=3), vocab=5)
    for sentence, hypotheses in enumerate(found):
        for h in hypotheses:
            ended = h.tokens if len(h.token_log_probs) == len(h.tokens) else [*h.tokens, EOS]
            expected = [word_log_probs(sentence, ended[:i], 5)[token] for i, token in enumerate(ended)]
            assert h.token_log_probs == pytest.approx(expected, abs=1e-5)
            assert h.log_prob == pytest.approx(sum(expected), abs=1e-5)
            assert h.score == pytest.approx(h.log_prob / length_penalty(len(ended), 0.6), abs=1e-5)


def test_n_best_is_sorted_and_distinct(run):
    found, _ = run(beam_search, range(10), [6] * 10, replace(PLAIN, beam_size=6, n_best=6), vocab=6)
    for hypotheses in found:
        assert len(hypotheses) == 6
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert len({tuple(h.tokens) for h in hypotheses}) == 6


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_results_do_not_depend_on_the_batch(run, search):
    sentences, longest = list(range(25)), [3 + s % 11 for s in range(25)]
    options = replace(PLAIN, n_best=2)
    together, cache = run(search, sentences, longest, options, vocab=5)
    assert len(set(cache.rows_per_step[1:])) > 2, "the batch was never compacted"
    backwards, _ = run(search, sentences[::-1], longest[::-1], options, vocab=5)
    alone = [run(search, [s], [longest[s]], options, vocab=5)[0][0] for s in sentences]
    assert together == alone == backwards[::-1]


def test_samples_do_not_depend_on_the_batch(run):
    options = replace(PLAIN, n_best=3, seed=7)
    streams = torch.arange(100, 115)
    together, _ = run(sample, range(15), [9] * 15, options, vocab=5, streams=streams)
    for s in range(15):
        alone, _ = run(sample, [s], [9], options, vocab=5, streams=streams[s : s + 1])
        assert alone == [together[s]]
    assert len({tuple(h.tokens) for h in together[0] + together[1]}) > 2


def test_first_step_has_one_row_per_sentence_and_finished_ones_leave(table_step, start_cache, make_limits):
    longest = [2, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    cache = start_cache(list(range(10)))
    beam_search(table_step(5), cache, make_limits(longest, shortest=longest), replace(PLAIN, beam_size=3))
    assert cache.rows_per_step == [10, 30, 27, 27, 27]


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_only_the_last_sentences_move_when_others_leave(table_step, start_cache, make_limits, search):
    longest = [9, 9, 2, 9, 2, 9, 9, 9]
    cache = start_cache(list(range(8)))
    found = search(table_step(5), cache, make_limits(longest, shortest=longest), PLAIN)
    assert [len(h.tokens) for [h] in found] == longest
    assert list(dict.fromkeys(cache.sentences)) == [0, 1, 6, 3, 7, 5]


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_a_finished_sentence_does_not_change_while_others_run(start_cache, make_limits, search):
    """One in twenty is done after the first step: too few to remove it; continuing would raise its score."""

    def step(tokens, cache):
        return torch.where(tokens == BOS, torch.tensor([-99.0, 0.0, 0.5]), torch.tensor([-99.0, -99.0, 0.0]))

    cache = start_cache(list(range(20)))
    found = search(step, cache, make_limits([1] + [8] * 19, shortest=[0] + [8] * 19), PLAIN)
    assert [h.tokens for [h] in found] == [[2]] + [[2] * 8] * 19
    assert len(cache.sentences) in (20, 80)


def test_search_stops_when_nothing_can_overtake(start_cache, make_limits):
    """The end token is almost certain from the start: of 1,000 allowed steps, a few are enough."""
    steps = []

    def step(tokens, cache):
        steps.append(len(tokens))
        return torch.tensor([0.0, 30.0, 0.0, 0.0]).expand(len(tokens), -1)

    [[h]] = beam_search(step, start_cache([0]), make_limits([1000]), PLAIN)
    assert h.tokens == [] and h.log_prob == pytest.approx(0.0, abs=1e-6)
    assert len(steps) == 1


def test_a_late_better_hypothesis_is_not_missed(start_cache, make_limits):
    """The short output finishes first; the long one overtakes it through the length penalty."""

    def step(tokens, cache):
        rows = {BOS: [-99.0, 0.0, 0.0, -99.0], 2: [-99.0, -99.0, 0.0, -99.0]}
        return torch.tensor([rows.get(token, rows[2]) for token in tokens.squeeze(1).tolist()])

    [[h]] = beam_search(step, start_cache([0]), make_limits([20]), replace(PLAIN, length_penalty=0.6))
    assert h.tokens == [2] * 20
    [[h]] = beam_search(step, start_cache([0]), make_limits([20]), replace(PLAIN, length_penalty=0.0))
    assert h.tokens == []


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_ties_are_broken_by_the_lower_id(start_cache, make_limits, search):
    def step(tokens, cache):
        return torch.zeros(len(tokens), 200)

    options = replace(PLAIN, eos_id=199)
    found = search(step, start_cache([0, 1]), make_limits([4, 4], shortest=[4, 4]), options)
    assert [h.tokens for [h] in found] == [[1, 1, 1, 1]] * 2


def test_vocabulary_smaller_than_the_beam(run):
    found, _ = run(beam_search, range(3), [1, 2, 6], replace(PLAIN, beam_size=10, n_best=10), vocab=3)
    assert [len(hypotheses) for hypotheses in found] == [2, 3, 7]  # all outputs that exist


def test_prefix_and_lengths_are_kept(table_step, start_cache, make_limits):
    limits = make_limits([5, 6, 9], shortest=[2, 6, 0], prefixes=[[3], [], [2, 2, 4]])
    for options in (replace(PLAIN, beam_size=4, n_best=4), replace(PLAIN, beam_size=1)):
        found = beam_search(table_step(5), start_cache([0, 1, 2]), limits, options)
        assert all(h.tokens[:1] == [3] and 2 <= len(h.tokens) <= 5 for h in found[0])
        assert all(len(h.tokens) == 6 for h in found[1])
        assert all(h.tokens[:3] == [2, 2, 4] and len(h.tokens) <= 9 for h in found[2])


def test_no_ngram_is_repeated(table_step, start_cache, make_limits):
    options = replace(PLAIN, n_best=4, no_repeat_ngram=2)
    found = beam_search(table_step(5), start_cache([0, 1]), make_limits([30, 30], shortest=[30, 30]), options)
    for h in itertools.chain(*found):
        bigrams = list(itertools.pairwise(h.tokens))
        assert len(bigrams) == len(set(bigrams)), h.tokens
        assert len(h.tokens) <= 10  # with three words there are nine bigrams: the output ends though it is short


def test_non_finite_logits_end_the_search(start_cache, make_limits):
    def step(tokens, cache):
        return torch.full((len(tokens), 5), math.nan)

    assert beam_search(step, start_cache([0]), make_limits([4]), PLAIN) == [[]]
    [[h]] = greedy(step, start_cache([0]), make_limits([4]), PLAIN)
    assert math.isnan(h.log_prob)


def test_samples_follow_the_distribution(start_cache, make_limits):
    probs = torch.tensor([0.0, 0.5, 0.3, 0.2])

    def step(tokens, cache):
        return probs.log().expand(len(tokens), -1)

    options = replace(PLAIN, n_best=4000)
    [found] = sample(step, start_cache([0]), replace(make_limits([1]), streams=torch.tensor([5])), options)
    share = [sum(h.tokens == tokens for h in found) / 4000 for tokens in ([], [2], [3])]
    assert share == pytest.approx([0.5, 0.3, 0.2], abs=0.03)
    assert isinstance(found[0], Hypothesis) and found[0].log_prob == pytest.approx(math.log(0.5), abs=1e-6)
