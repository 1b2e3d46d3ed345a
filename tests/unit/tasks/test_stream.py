"""Training batches of translation models: source dropout and both directions."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from headwise.config.settings import RunConfig, apply_settings
from headwise.core.batches import Batch
from headwise.pytorch.data.batching import unchanged_tokens
from headwise.pytorch.data.stream import ALL_BATCHES
from headwise.pytorch.tasks.translation import TranslationJob
from headwise.text.files.corpus import Corpus
from headwise.text.prepared.prepared import PreparedCorpus, prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = apply_settings(RunConfig(), ["data.vocab_size=300", "train.tokens_per_batch=40", "train.batching=random"])
Material = tuple[PreparedCorpus, Tokenizer]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder: Path = tmp_path_factory.mktemp("corpus")
    lines = [f"{'go ' * (1 + i % 5)}{i}\t{'geh ' * (1 + i % 5)}{i}\n" for i in range(40)]
    (folder / "a.tsv").write_text("".join(lines), encoding="utf-8")
    corpora = [Corpus((str(folder / "a.tsv"),))]
    tokenizer = train_tokenizer(corpora, CONFIG.data, cache_dir=folder)
    return prepare(corpora, tokenizer, CONFIG.data, cache_dir=folder, progress=False), tokenizer


def job(material: Material, *settings: str) -> TranslationJob:
    corpus, tokenizer = material
    return TranslationJob(apply_settings(CONFIG, settings), tokenizer, {}, corpus, corpus, None, "")


def batches(job: TranslationJob, count: int) -> list[Batch]:
    stream = job.stream(None, ALL_BATCHES)
    try:
        return list(islice(stream, count))
    finally:
        stream.close()


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_source_dropout_is_for_training_only(material: Material, probability: float) -> None:
    asked = job(material, f"data.source_dropout={probability}")
    read = torch.cat([batch.src[batch.src_mask] for batch in batches(asked, 20)])
    pieces = read[read != asked.tokenizer.eos_id]
    assert (pieces == asked.tokenizer.unk_id).float().mean() == pytest.approx(probability, abs=0.1)
    assert asked.noise(0) is unchanged_tokens  # for validation


def read(batch: Batch, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """The pairs of a batch as text."""
    sides = zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True)
    return [(tokenizer.decode(src), tokenizer.decode(tgt)) for src, tgt in sides]


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.3])
def test_both_directions_in_the_first_updates(material: Material, bpe_dropout: float) -> None:
    corpus, tokenizer = material
    more = [f"data.bpe_dropout={bpe_dropout}", "train.max_steps=60", "train.accumulate=2"]
    asked = job(material, "data.both_directions=0.5", *more)
    given = [read(batch, tokenizer) for batch in batches(asked, 60 + 40)]
    first, second = ([pair for pairs in part for pair in pairs] for part in (given[:60], given[60:]))
    wanted = {corpus.text(row) for row in range(len(corpus))}
    assert set(first) == wanted | {(tgt, src) for src, tgt in wanted}
    assert set(second) == wanted
    assert any(pair not in wanted for pair in given[59])  # to the last of them
    plain = [read(batch, tokenizer) for batch in batches(job(material, *more), 40)]
    assert given[60:] == plain


def test_both_stages_resume_exactly(material: Material) -> None:
    settings = ("data.both_directions=0.5", "data.bpe_dropout=0.3", "data.source_dropout=0.2", "train.max_steps=40")
    whole, given, states = job(material, *settings).stream(None, ALL_BATCHES), [], []
    for batch in islice(whole, 40):
        given.append(batch)
        states.append(whole.state())
    whole.close()
    for at in (0, 7, 18, 19, 20, 31):
        for longer in ((), ("train.max_steps=400",)):  # the stage ends at the same step
            rest = job(material, *settings, *longer).stream(states[at], ALL_BATCHES)
            for found, expected in zip(islice(rest, 5), given[at + 1 :], strict=False):
                assert torch.equal(found.src, expected.src)
                assert torch.equal(found.tgt_out, expected.tgt_out)
            rest.close()
