"""Time that a process spends on its batches of an update, by the number of processes.

    python benchmarks/loading.py [--ranks 1 8 64] [--updates 40] [--cores 0]

An update has one batch for each process. "Own" is what a process does: it walks through the plan and builds its own
batch. "All" builds every batch of the update, as one process does that accumulates as many. Means over updates, of
the first process, without network or communication. With BPE-dropout the lengths of segmentations decide the batches,
so every process segments all pairs. The corpus is generated, short pairs.
Writes `results/loading_*`.
"""

import argparse
import statistics
import tempfile
from itertools import islice
from pathlib import Path

import machine
from growth import write_corpus

from headwise.config.data import TranslationData
from headwise.pytorch.data.batching import PairBatches
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare, Cursor
from headwise.text.files.corpus import Corpus
from headwise.text.prepared.prepared import PreparedCorpus, prepare, train_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

PAIRS = machine.pick(100_000, 2_000)
TOKENS = machine.pick(1000, 100)  # per batch
DROPOUTS = (0.0, 0.1)


def material(folder: Path) -> tuple[PreparedCorpus, Tokenizer]:
    """A generated corpus, prepared."""
    config, corpora = TranslationData(), [Corpus(write_corpus(folder, PAIRS))]
    tokenizer = train_tokenizer(corpora, config, cache_dir=folder)
    return prepare(corpora, tokenizer, config, cache_dir=folder, progress=False), tokenizer


def update_times(batches: PairBatches, share: BatchShare, per_update: int, updates: int) -> list[float]:
    """Seconds to build `per_update` batches of a share, for each update."""
    builds = (build() for _, build in share.of(batches.walk(Cursor())))
    list(islice(builds, per_update))  # plans the epoch
    seconds = []
    for _ in range(updates):
        started = machine.now()
        list(islice(builds, per_update))
        seconds.append(machine.now() - started)
    return seconds


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=machine.pick([1, 8, 64], [1, 2]))
    parser.add_argument("--updates", type=int, default=machine.pick(40, 2))
    machine.add_machine_options(parser)
    parser.add_argument("--name", default="loading", help="of the result files")
    options = parser.parse_args()
    about = machine.description(machine.prepare(options))
    rows, data = [], []
    with tempfile.TemporaryDirectory() as folder:
        pairs, tokenizer = material(Path(folder))
        for dropout in DROPOUTS:
            batches = PairBatches(pairs, tokenizer, TranslationData(bpe_dropout=dropout), TOKENS, seed=1)
            for n in options.ranks:
                own = update_times(batches, BatchShare(0, n, n), 1, options.updates)
                every = update_times(batches, ALL_BATCHES, n, options.updates)
                data.append({"dropout": dropout, "ranks": n, "own": own, "all": every})
                rows.append([dropout, n, *(f"{1000 * statistics.fmean(values):.2f}" for values in (own, every))])
    table = machine.table(["BPE-dropout", "processes", "own, ms", "all, ms"], rows)
    path = machine.result_path(options.name)
    head = f"{TOKENS:,} tokens per batch.\n\n" + __doc__.split("\n\n", 2)[2].strip()
    machine.write_result(path, "Building the batches of an update", about, [head, table], {"updates": data})
    print(table)
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
