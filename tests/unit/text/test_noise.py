"""Text infilling and token dropout: by hand, properties of every text, and the same noise after resuming."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.config.data import TranslationData
from headwise.pytorch.data.batching import PairBatches, validation_batches
from headwise.text.files.corpus import plain_texts
from headwise.text.prepared.batch_planning import Noise
from headwise.text.prepared.noise import (
    MASK,
    TextInfilling,
    TokenDropout,
    poisson_lengths,
    replace_with_masks,
    span_lengths,
    word_spans,
)
from headwise.text.prepared.prepared import PreparedCorpus, prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = TranslationData(vocab_size=300)
LINES = ["a dog runs in the park", "ein Hund rennt durch den Park.", "犬が走る"]
Corpus = tuple[PreparedCorpus, Tokenizer]


@pytest.mark.parametrize(
    ("n_words", "drawn", "expected"),
    [
        (10, (3,), [3]),
        (10, (5,), [3]),  # cut off at 30 %
        (10, (1, 4), [1, 2]),
        (10, (2, 0, 6), [2, 0, 1]),  # a mask between two words
        (4, (0, 0, 1, 0, 4), [1, 1]),  # 30 % of 4 words is 2, and no more masks than that
        (1, (0, 2), [1]),
        (0, (), []),
    ],
)
def test_spans_by_hand(n_words: int, drawn: tuple[int, ...], expected: list[int]) -> None:
    assert span_lengths(n_words, drawn) == expected


def test_spans_are_three_words_on_average() -> None:
    lengths = list(islice(poisson_lengths(np.random.default_rng(1)), 4000))
    assert np.mean(lengths) == pytest.approx(3, abs=0.1)
    assert np.var(lengths) == pytest.approx(3, abs=0.2)


WORDS = [[11], [21, 22], [31], [41, 42, 43], [51], [61]]


@pytest.mark.parametrize(
    ("spans", "gaps", "expected"),
    [
        ([2], [0], [0, 31, 41, 42, 43, 51, 61]),
        ([2], [4], [11, 21, 22, 31, 41, 42, 43, 0]),
        ([1, 1], [1, 2], [11, 0, 31, 0, 51, 61]),
        ([0, 2], [1, 4], [11, 0, 21, 22, 31, 41, 42, 43, 0]),
        ([], [], [11, 21, 22, 31, 41, 42, 43, 51, 61]),
    ],
)
def test_infilling_by_hand(spans: list[int], gaps: list[int], expected: list[int]) -> None:
    assert replace_with_masks(WORDS, spans, gaps, mask_id=0) == expected


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder: Path = tmp_path_factory.mktemp("corpus")
    for name, lines in (("a.en", LINES * 9), ("a.de", LINES[1:] * 9)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpora = plain_texts([str(folder / "a.en"), str(folder / "a.de")])
    tokenizer = train_tokenizer(corpora, CONFIG, [MASK], cache_dir=folder, sources_only=True)
    return prepare(corpora, tokenizer, CONFIG, cache_dir=folder, progress=False), tokenizer


@pytest.fixture(scope="module")
def tokenizer(corpus: Corpus) -> Tokenizer:
    return corpus[1]


def test_plain_text_is_paired_with_itself(corpus: Corpus) -> None:
    prepared, _ = corpus
    assert len(prepared) == 45
    assert [prepared.text(row) for row in (0, 2, 27)] == [(LINES[row], LINES[row]) for row in (0, 2, 1)]
    assert prepared.src(0).tolist() == prepared.tgt(0).tolist()


@given(st.integers(0, 40), st.integers(0, 99))
def test_properties_of_every_text(n_words: int, row: int) -> None:
    generator = np.random.default_rng([1, 2, row])
    spans = span_lengths(n_words, poisson_lengths(generator))
    gaps = sorted(generator.permutation(n_words - sum(spans) + 1)[: len(spans)].tolist())
    words = [[1 + word] for word in range(n_words)]
    noised = replace_with_masks(words, spans, gaps, mask_id=0)
    kept = [token for token in noised if token]
    assert len(kept) == n_words - -(-30 * n_words // 100)
    assert kept == sorted(kept)
    assert len(noised) <= n_words
    assert (0, 0) not in pairwise(noised)  # no two masks side by side


def test_words_are_masked_whole(tokenizer: Tokenizer) -> None:
    noise, tokens = TextInfilling(tokenizer, seed=1), tokenizer.encode(LINES[1])
    found = {tokenizer.decode(noise(tokens, epoch, 0)).replace(MASK, f" {MASK} ") for epoch in range(50)}
    words = {word for text in found for word in text.split()}
    assert words == {*LINES[1].split(), MASK}
    assert len(found) > 10


def test_a_text_without_spaces_is_masked_token_by_token(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("園内で猫が眠る")
    assert len(word_spans(tokens, np.zeros(tokenizer.vocab_size, bool))) == len(tokens)
    noised = TextInfilling(tokenizer, seed=1)(tokens, 0, 0)
    masks = noised.count(TextInfilling(tokenizer, seed=1).mask_id)
    assert masks > 0
    assert len(noised) - masks == len(tokens) - -(-30 * len(tokens) // 100)


def test_noise_depends_on_seed_epoch_and_row(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(" ".join("abcdefghijklmnopqrst"))
    first = TextInfilling(tokenizer, 1)(tokens, 2, 3)
    assert first == TextInfilling(tokenizer, 1)(np.array(tokens, np.int32), 2, 3)
    others = [
        TextInfilling(tokenizer, 2)(tokens, 2, 3),
        *(TextInfilling(tokenizer, 1)(tokens, *at) for at in ((0, 3), (2, 0))),
    ]
    assert first not in others


def test_tokens_become_unknown_with_the_probability(tokenizer: Tokenizer) -> None:
    tokens = np.array([*tokenizer.encode(" ".join("abcdefghij") + MASK)], np.int32)
    read = np.array(
        [TokenDropout(tokenizer, 0.3, seed=1)(tokens, epoch, row) for epoch in range(9) for row in range(99)]
    )
    unknown = read == tokenizer.unk_id
    assert (read == tokens)[~unknown].all()
    assert not unknown[:, tokens == TextInfilling(tokenizer, 1).mask_id].any()  # a declared piece stays
    assert unknown[:, :10].mean(0) == pytest.approx(np.full(10, 0.3), abs=0.06)
    assert len(np.unique(unknown, axis=0)) > 300  # drawn anew for each epoch and row


def test_token_dropout_depends_on_seed_epoch_and_row(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(" ".join("abcdefghijklmnopqrst"))
    drawn = [TokenDropout(tokenizer, 0.5, seed)(tokens, *at).tolist() for seed, *at in ((1, 2, 3), (1, 2, 3))]
    assert drawn[0] == drawn[1]
    others = [
        TokenDropout(tokenizer, 0.5, seed)(tokens, *at).tolist() for seed, *at in ((2, 2, 3), (1, 0, 3), (1, 2, 0))
    ]
    assert drawn[0] not in others


def mask_words(tokenizer: Tokenizer) -> tuple[Noise, int]:
    """A noise and the token it inserts."""
    noise = TextInfilling(tokenizer, 3)
    return noise, noise.mask_id


def drop_tokens(tokenizer: Tokenizer) -> tuple[Noise, int]:
    return TokenDropout(tokenizer, 0.9, 3), tokenizer.unk_id


@pytest.mark.parametrize(("make", "share"), [(mask_words, 1.0), (drop_tokens, 0.8)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_resumed_stream_has_the_same_noise(
    corpus: Corpus, dropout: float, make: Callable[[Tokenizer], tuple[Noise, int]], share: float
) -> None:
    config, (noise, left) = replace(CONFIG, bpe_dropout=dropout), make(corpus[1])
    with closing(PairBatches(*corpus, config, 60, seed=3, noise=noise).stream()) as whole:
        batches, states = [], [whole.state()]
        while whole.cursor.epoch < 2:
            batches.append(next(whole))
            states.append(whole.state())
    assert torch.cat([(batch.src == left).any(1) for batch in batches]).float().mean() >= share
    assert not any((batch.tgt_out == left).any() for batch in batches)
    sources = {
        tuple(row.tolist()) for batch in batches for row, at in zip(batch.src, batch.index, strict=True) if at == 0
    }
    assert len(sources) > 1  # anew in every epoch
    for start in range(0, len(batches), 5):
        with closing(PairBatches(*corpus, config, 60, seed=3, noise=noise).stream(state=states[start])) as rest:
            for found, expected in zip(islice(rest, 3), batches[start:], strict=False):
                assert torch.equal(found.src, expected.src)
                assert torch.equal(found.tgt_out, expected.tgt_out)


def test_validation_sees_the_same_noise_every_time(corpus: Corpus) -> None:
    passes = [list(validation_batches(*corpus, 60, TextInfilling(corpus[1], 0))) for _ in range(2)]
    assert all(torch.equal(one.src, other.src) for one, other in zip(*passes, strict=True))
    assert any((batch.src == TextInfilling(corpus[1], 0).mask_id).any() for batch in passes[0])
