"""Preparing a large corpus: seconds and memory of each step of the first `headwise train` and of the next.

    python benchmarks/preparing.py --train corpus.en corpus.de [--pairs 10000000] [--folder DIR] [--workers 1]
                                   [--cores 0]

Pairs are made from those of `--train`: two at random, joined by a space, so that nearly all lines differ. Each step has
its own process, with `--workers` more for tokenizing; memory is the largest resident memory of the process, with mapped
files. The steps:

- `tokenizer`: hashing the files and training on a sample (`data.tokenizer_sample`)
- `first`: hashing, tokenizing in shards and writing the cache
- `again`: hashing, and opening the cache
- `grown`: the same after 1 % more lines at the end
- `batches`: the first 1,000 batches of an epoch, planning included, on the cache of `first`

`--complete` also trains a tokenizer on all pairs, and compares tokens per sentence on 20,000 other pairs. The folder
needs about 600 bytes a pair. Writes `results/preparing_*`.
"""

import argparse
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import machine
from workers import Worker

from headwise.config.data import TranslationData
from headwise.pytorch.data.batching import PairBatches
from headwise.text.files.corpus import Corpus, parse_corpora, read_pairs
from headwise.text.prepared.prepared import PreparedCorpus, prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

CONFIG = TranslationData(tokenizer_sample=machine.pick(1_000_000, 500), vocab_size=machine.pick(8000, 400))
TESTED = machine.pick(20_000, 100)  # pairs for tokens per sentence
BATCHES, TOKENS = machine.pick(1000, 10), 4000


def write_pairs(corpora: Sequence[Corpus], paths: tuple[str, str], n: int, seed: int, mode: str = "w") -> None:
    """Write n pairs, each of two pairs of `corpora`."""
    pairs, generator = list(read_pairs(corpora)), random.Random(seed)
    with open(paths[0], mode, encoding="utf-8") as src, open(paths[1], mode, encoding="utf-8") as tgt:
        for _ in range(n):
            one, other = generator.choices(pairs, k=2)
            src.write(f"{one[0]} {other[0]}\n")
            tgt.write(f"{one[1]} {other[1]}\n")


def prepared(folder: str, workers: int) -> PreparedCorpus:
    """The generated corpus, prepared in `folder`."""
    place = Path(folder)
    tokenizer = Tokenizer.load(place / "tokenizer.json")
    return prepare([corpus_in(place)], tokenizer, CONFIG, place / "cache", progress=False, workers=workers)


def corpus_in(folder: Path) -> Corpus:
    """The generated corpus."""
    return Corpus((str(folder / "corpus.src"), str(folder / "corpus.tgt")))


def tokenizer_step(folder: str, sample: int) -> Callable[[], None]:
    """Training the tokenizer."""
    config, place = replace(CONFIG, tokenizer_sample=sample), Path(folder)

    def work() -> None:
        tokenizer = train_tokenizer([corpus_in(place)], config, cache_dir=place / f"cache-{sample}")
        tokenizer.save(place / ("tokenizer.json" if sample else "complete.json"))

    return work


def preparation_step(folder: str, workers: int) -> Callable[[], int]:
    """Preparing the corpus; returns the kept pairs."""
    return lambda: len(prepared(folder, workers))


def batches_step(folder: str, workers: int) -> Callable[[], int]:
    """The first batches; returns their target tokens."""
    pairs = prepared(folder, workers)
    tokenizer = Tokenizer.load(Path(folder) / "tokenizer.json")

    def work() -> int:
        stream = PairBatches(pairs, tokenizer, CONFIG, TOKENS, seed=1, bucketed=False).stream()
        tokens = sum(batch.n_targets for batch in islice(stream, BATCHES))
        stream.close()
        return tokens

    return work


def tokens_per_sentence(path: Path, corpora: Sequence[Corpus], folder: Path) -> float:
    """Mean tokens of a side of new pairs."""
    new = str(folder / "new.src"), str(folder / "new.tgt")
    write_pairs(corpora, new, TESTED, seed=3)
    tokenizer = Tokenizer.load(path)
    texts = [side for pair in read_pairs([Corpus(new)]) for side in pair]
    return sum(map(len, tokenizer.encode_batch(texts))) / len(texts)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(place: Path, corpora: Sequence[Corpus], options: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """A row for each step, and remarks."""
    rows, corpus = [], corpus_in(place)
    paths = corpus.paths[0], corpus.paths[1]
    write_pairs(corpora, paths, options.pairs, seed=1)
    notes = [f"Text: {sum(Path(path).stat().st_size for path in paths) / 1e9:.2f} GB."]

    def step(name: str, make: Callable[..., Callable[[], object]], *arguments: object) -> None:
        worker = Worker(make, str(place), *arguments)
        reply = worker()
        worker.close()
        rows.append([name, f"{reply.seconds:.1f}", f"{reply.peak_bytes / 2**20:,.0f}"])
        print(*rows[-1], flush=True)

    step("tokenizer", tokenizer_step, CONFIG.tokenizer_sample)
    step("first", preparation_step, options.workers)
    notes.append(f"Cache: {size_of(place / 'cache') / 1e9:.2f} GB.")
    step("again", preparation_step, options.workers)
    step("batches", batches_step, options.workers)
    write_pairs(corpora, paths, options.pairs // 100, seed=2, mode="a")
    step("grown", preparation_step, options.workers)
    if options.complete:
        step("tokenizer on all pairs", tokenizer_step, 0)
        names = {"sample": "tokenizer.json", "all pairs": "complete.json"}
        found = {name: tokens_per_sentence(place / file, corpora, place) for name, file in names.items()}
        notes.append("Tokens per sentence: " + ", ".join(f"{name} {n:.3f}" for name, n in found.items()) + ".")
    return rows, notes


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--pairs", type=int, default=machine.pick(10_000_000, 2000))
    parser.add_argument("--folder", type=Path, help="for the corpus and the cache (default: a temporary one)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--complete", action="store_true", help="also train a tokenizer on all pairs")
    machine.add_machine_options(parser)
    parser.add_argument("--name", default="preparing", help="of the result files")
    options = parser.parse_args()
    threads = machine.prepare(options)
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers library
    about = machine.description(threads)
    place = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        rows, notes = measure(place, parse_corpora(options.train), options)
    finally:
        shutil.rmtree(place)
    table = machine.table(["step", "seconds", "peak MiB"], rows)
    sections = [__doc__.split("\n\n", 2)[2].strip(), f"{options.pairs:,} pairs. {' '.join(notes)}", table]
    path = machine.result_path(options.name)
    machine.write_result(path, "Preparing a large corpus", about, sections, {"pairs": options.pairs, "rows": rows})
    print(*sections[1:], sep="\n\n")
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
