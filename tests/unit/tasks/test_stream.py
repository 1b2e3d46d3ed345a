"""What a translator's training reads: sources with pieces made unknown, where that is asked for."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from sightline.config import RunConfig, apply_settings
from sightline.data.batch import Batch
from sightline.data.batching import unchanged
from sightline.data.corpus import Corpus
from sightline.data.prepared import PreparedCorpus, learn_tokenizer, prepare
from sightline.data.tokenizer import Tokenizer
from sightline.tasks.translation import TranslationJob

CONFIG = apply_settings(RunConfig(), ["data.vocab_size=300", "train.tokens_per_batch=40", "train.batching=random"])
Material = tuple[PreparedCorpus, Tokenizer]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder: Path = tmp_path_factory.mktemp("corpus")
    lines = [f"{'go ' * (1 + i % 5)}\t{'geh ' * (1 + i % 5)}\n" for i in range(40)]
    (folder / "a.tsv").write_text("".join(lines), encoding="utf-8")
    corpora = [Corpus((str(folder / "a.tsv"),))]
    tokenizer = learn_tokenizer(corpora, CONFIG.data, cache_dir=folder)
    return prepare(corpora, tokenizer, CONFIG.data, cache_dir=folder, progress=False), tokenizer


def job(material: Material, *settings: str) -> TranslationJob:
    corpus, tokenizer = material
    return TranslationJob(apply_settings(CONFIG, settings), tokenizer, {}, corpus, corpus, None, "")


def batches(job: TranslationJob, count: int) -> list[Batch]:
    stream = job.stream(None, pin=False)
    try:
        return list(islice(stream, count))
    finally:
        stream.close()


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_source_pieces_are_dropped_in_training_alone(material: Material, probability: float) -> None:
    asked = job(material, f"data.source_dropout={probability}")
    read = torch.cat([batch.src[batch.src_mask] for batch in batches(asked, 20)])
    pieces = read[read != asked.tokenizer.eos_id]
    assert (pieces == asked.tokenizer.unk_id).float().mean() == pytest.approx(probability, abs=0.1)
    assert asked.noise(0) is unchanged  # what validation reads
