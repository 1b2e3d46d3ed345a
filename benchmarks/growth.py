"""How time and peak memory of Headwise grow with everything that a user can make larger, with fitted slopes.

    python benchmarks/growth.py [--curves length batch vocabulary layers beam corpus] [--pairs 20000 10000000]
                                [--cores 0]

A slope is the exponent b of cost = a x^b: 1 is proportional, 0 is flat. It is fitted to all points by least squares in
logarithms, and again to the last doubling, where fixed costs weigh least. Every point is measured in its own process;
memory is its peak beyond that of the imports. Times are the fastest of four (once for preparing a corpus), because
other work on the machine only adds time. The model has width 256 and 3+3 layers unless the curve varies them. Corpora
are generated, short pairs.
Writes `results/growth_*`.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import machine
import numpy as np
from figures import lines
from work import BOS, EOS, PAD, SIZES, UNK
from workers import Worker, peak_memory

MODEL = SIZES[machine.pick("d256", "tiny")]
REPEATS = machine.pick(4, 1)
SAMPLE = machine.pick(20_000, 500)  # pairs to train the tokenizer on
CORPORA = machine.pick((20_000, 40_000, 80_000, 160_000, 320_000), (500, 1000))  # pairs


@dataclass(frozen=True)
class Curve:
    """A quantity that grows."""

    title: str
    unit: str
    xs: tuple[int, ...]
    make: Callable[[int], Callable[[], float]]  # x -> a function that runs once and returns its seconds


@dataclass(frozen=True)
class Point:
    """The cost at one value of x."""

    x: int
    seconds: float
    peak_bytes: int


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The exponent of the power law through the points, by least squares in logarithms.

    >>> round(slope([1, 2, 4, 8], [3, 12, 48, 192]), 6)
    2.0
    """
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def training_step(pairs: int = 1, length: int = 16, **shape: int) -> Callable[[], float]:
    """A training step on `pairs` pairs of `length` tokens a side, end tokens included."""
    from training_contenders import ours

    from headwise.core.batches import collate
    from headwise.runtime.allocator import keep_freed_memory

    keep_freed_memory()
    size = replace(MODEL, **shape)
    generator = np.random.default_rng(1)
    ids = generator.integers(UNK + 1, size.vocab_size, (pairs, 2, length - 1), dtype=np.int32)
    batch = collate([(src, tgt) for src, tgt in ids], PAD, BOS, EOS)
    step = ours(size)
    return lambda: timed(lambda: step(batch))


def translation(beam: int, sentences: int = 32) -> Callable[[], float]:
    """Translating sentences of 16 tokens into 14, in one batch."""
    import torch
    from decoders import Job, our_settings, prepare
    from work import draw_tokens

    from headwise.config.settings import SearchSettings
    from headwise.contract import SpecialIds
    from headwise.pytorch.architectures.transformer import build_model
    from headwise.pytorch.search.stepwise import engine_of
    from headwise.runtime.search.engine import decode_tokens

    torch.manual_seed(1)
    model = prepare(build_model(MODEL.config()).eval(), "float32")
    sources = [row.tolist() for row in draw_tokens(np.full(sentences, 15))]
    config = our_settings(SearchSettings(batch_tokens=sentences * beam * 16), Job(beam, None, length=14))
    return lambda: timed(lambda: decode_tokens(engine_of(model), sources, config, SpecialIds(PAD, BOS, EOS, UNK)))


def preparation(pairs: int) -> Callable[[], float]:
    """Tokenising a generated corpus of that many pairs into the cache; files are made before timing."""
    from headwise.config.data import TranslationData
    from headwise.text.files.corpus import Corpus
    from headwise.text.prepared.prepared import prepare, train_tokenizer

    folder = tempfile.TemporaryDirectory()
    place = Path(folder.name)
    paths = write_corpus(place, pairs)
    tokenizer = train_tokenizer([Corpus(write_corpus(place, SAMPLE, "sample"))], TranslationData(), cache_dir=place)

    def work(owner: Any = folder) -> float:  # keeps the folder until the end
        cache = Path(owner.name) / f"cache-{time.monotonic_ns()}"
        return timed(lambda: prepare([Corpus(paths)], tokenizer, TranslationData(), cache, progress=False))

    return work


def epoch_plan(pairs: int) -> Callable[[], float]:
    """Planning the batches of an epoch of that many pairs, with lengths from a mapped file."""
    from work import draw_lengths

    from headwise.text.prepared.batch_planning import plan_epoch

    folder = tempfile.TemporaryDirectory()
    path, sampled = Path(folder.name) / "lengths", draw_lengths(min(pairs, 100_000)).astype(np.int32)
    with path.open("wb") as file:
        for start in range(0, pairs, len(sampled)):
            file.write(sampled[: pairs - start].tobytes())

    def work(owner: Any = folder) -> float:  # keeps the folder until the end
        src, tgt = np.memmap(path, np.int32, "r").reshape(-1, 2).T
        return timed(lambda: sum(len(plan) for plan in plan_epoch(src, tgt, 25_000, seed=1, epoch=0)))

    return work


def write_corpus(folder: Path, pairs: int, name: str = "corpus") -> tuple[str, str]:
    """Two files of short lines: two to six words out of 20,000, some much more frequent than others."""
    generator = random.Random(1)
    letters = "etaoinshrdlu"
    words = ["".join(generator.choices(letters, k=generator.randint(2, 8))) for _ in range(20_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    pool = generator.choices(words, weights, k=1 << 20)
    paths = (str(folder / f"{name}.src"), str(folder / f"{name}.tgt"))
    for path in paths:
        with open(path, "w", encoding="utf-8") as file:
            for _ in range(pairs):
                start = generator.randrange(len(pool) - 6)
                file.write(" ".join(pool[start : start + generator.randint(2, 6)]) + "\n")
    return paths


def timed(work: Callable[[], Any]) -> float:
    """Seconds a call takes."""
    started = machine.now()
    work()
    return machine.now() - started


def doublings(first: int, last: int) -> tuple[int, ...]:
    """first, 2 first, 4 first ... up to last; in a quick run the first two.

    >>> doublings(64, 300)
    (64, 128, 256)
    """
    found, last = [first], machine.pick(last, 2 * first)
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return tuple(found)


def curves(sizes: tuple[int, ...] = CORPORA) -> dict[str, Curve]:
    """All curves; `sizes` are those of the corpora, in pairs."""
    return {
        "length": Curve("Training step: one pair", "tokens a side", doublings(128, 4096), step_of_length),
        "batch": Curve("Training step: pairs of 16 tokens", "pairs in the batch", doublings(16, 512), step_of_batch),
        "vocabulary": Curve(
            "Training step: 64 pairs", "tokens in the vocabulary", doublings(1000, 64_000), step_of_vocab
        ),
        "layers": Curve("Training step: 64 pairs", "layers a side", doublings(1, 16), step_of_layers),
        "beam": Curve("Translation: 32 sentences", "beam", doublings(1, 16), translation),
        "corpus": Curve("Preparing a corpus", "pairs", sizes, preparation),
        "plan": Curve("Planning an epoch", "pairs", sizes, epoch_plan),
    }


def step_of_length(x: int) -> Callable[[], float]:
    """x -> a step on one pair of x tokens."""
    return training_step(length=x)


def step_of_batch(x: int) -> Callable[[], float]:
    """x -> a step on x pairs."""
    return training_step(pairs=x)


def step_of_vocab(x: int) -> Callable[[], float]:
    """x -> a step with a vocabulary of x tokens."""
    return training_step(pairs=64, vocab_size=x)


def step_of_layers(x: int) -> Callable[[], float]:
    """x -> a step through x + x layers."""
    return training_step(pairs=64, n_layers=x)


def point(name: str, x: int, sizes: tuple[int, ...]) -> Callable[[], tuple[float, int]]:
    """Runs in its own process: the fewest seconds, and peak memory beyond that of the imports."""
    import headwise.pytorch.training.trainer  # noqa: F401  what all curves import, so that all start from the same

    before = peak_memory()
    work = curves(sizes)[name].make(x)

    def measure() -> tuple[float, int]:
        repeats = 1 if name == "corpus" else REPEATS
        seconds = [work() for _ in range(repeats)]
        return min(seconds), peak_memory() - before

    return measure


def measure(name: str, sizes: tuple[int, ...], threads: int) -> list[Point]:
    """All points of a curve."""
    found = []
    for x in curves(sizes)[name].xs:
        worker = Worker(point, name, x, sizes, threads=threads)
        seconds, peak = worker().value
        worker.close()
        found.append(Point(x, seconds, peak))
        print(f"  {name} {x:,}: {seconds:.4g} s, {peak / 2**20:,.0f} MiB", flush=True)
    return found


def slopes(points: Sequence[Point]) -> dict[str, float]:
    """Of time and memory, over all points and over the last doubling."""
    xs = [p.x for p in points]
    columns = {"time": [p.seconds for p in points], "memory": [float(p.peak_bytes) for p in points]}
    return {
        f"{name}{suffix}": slope(xs[start:], ys[start:])
        for name, ys in columns.items()
        for suffix, start in (("", 0), (" at the end", -2))
    }


def section(name: str, curve: Curve, points: Sequence[Point]) -> str:
    """The table of a curve."""
    rows = [[f"{p.x:,}", f"{p.seconds:.4g}", f"{p.peak_bytes / 2**20:,.0f}"] for p in points]
    fitted = ", ".join(f"{what} {value:.2f}" for what, value in slopes(points).items())
    table = machine.table([curve.unit, "seconds", "peak MiB"], rows)
    return f"## {name}\n\n{curve.title}. Slopes: {fitted}.\n\n{table}"


def panels(name: str, curve: Curve, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Time and memory of a curve, each with its fitted power law."""
    xs = [p.x for p in points]
    made = []
    for what, ys in (
        ("time, s", [p.seconds for p in points]),
        ("peak memory, MiB", [p.peak_bytes / 2**20 for p in points]),
    ):
        b = slope(xs, ys)
        middle = np.exp(np.mean(np.log(ys)) - b * np.mean(np.log(xs)))
        fit = [float(middle * x**b) for x in xs]
        points = {"measured": (xs, ys), f"slope {b:.2f}": (xs, fit)}
        made.append({"title": name, "x": curve.unit, "y": what, "curves": points})
    return made


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="+", choices=curves(), default=list(curves()))
    parser.add_argument("--pairs", nargs="+", type=int, default=CORPORA, help="of the corpora (default: %(default)s)")
    machine.add_machine_options(parser)
    parser.add_argument("--name", default="growth", help="of the result files")
    options = parser.parse_args()
    threads = machine.prepare(options)
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers library
    about = machine.description(threads)
    path = machine.result_path(options.name)
    sections, data = [__doc__.split("\n\n", 2)[2].strip()], {}
    for name in options.curves:
        sizes = tuple(options.pairs)
        curve = curves(sizes)[name]
        points = measure(name, sizes, threads)
        figure = lines(path.with_name(f"{path.name}_{name}"), panels(name, curve, points))
        sections += [section(name, curve, points), f"![{name}]({figure.name})"]
        data[name] = {"points": [vars(p) for p in points], "slopes": slopes(points)}
        print(sections[-2], flush=True)
    machine.write_result(path, "How the cost grows", about, sections, data)
    print(f"written to {path}.md")


if __name__ == "__main__":
    main()
