"""The other tasks on public data: the recipes of the pages, cheap baselines, and what the pages say of both.

    python benchmarks/tasks.py --data DATA --out runs/tasks --cores 0 [--only trec ...] [--seeds 1 2 3] [--check]

DATA holds the files that `CORPORA` reads. Each is converted for `headwise train`, trained with each seed and evaluated
on its test part; interrupted runs are resumed. `--check` compares the medians with the tables of the pages, which state
a median and the range of three seeds, and writes no results: the exit code is 1 if one differs by more than its range.

A twentieth of TREC's training questions validates. SST-2's development sentences are split at random: one half for
choosing the model, the other for testing. ETTh1 is split as in the literature: 12 months, then 4, then 4, the last for
testing. Of MNIST's 10,000 pictures 7,500 train and 500 validate. On tiny Shakespeare (the last tenth is the test) and
the CMU dictionary (all lines of the test part, with stress) only the baseline is computed.
"""

import argparse
import gzip
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import baselines
import machine
import numpy as np

import headwise

Files = dict[str, str]
MONTH = 30 * 24  # rows of ETTh1
HELD_OUT = {"train": (0, 7500), "valid": (7500, 8000), "test": (8000, 10_000)}  # of MNIST's pictures
PAGES = Path(__file__).parents[1] / "docs"
STATED = re.compile(r"\[(\d[\d.]*)(?: ± (\d[\d.]*))?\]")  # the text of a link to a file of results


def lines(path: Path) -> list[str]:
    """Lines of a gzipped text."""
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def write(path: Path, rows: list[str]) -> str:
    """A text file of these lines, and its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return str(path)


def labelled(question: str) -> str:
    """A line of TREC in the format of `headwise train`.

    >>> labelled("DESC:manner How are cards made ?").expandtabs(1)
    'How are cards made ? DESC'
    """
    label, text = question.split(" ", 1)
    return f"{text}\t{label.split(':')[0]}"


def trec(data: Path, work: Path) -> Files:
    """Questions and the six coarse classes."""
    rows = [labelled(line) for line in lines(data / "cls/trec.train.txt.gz")]
    random.Random(1).shuffle(rows)
    held_out = len(rows) // 20
    test = [labelled(line) for line in lines(data / "cls/trec.test.txt.gz")]
    parts = {"train": rows[held_out:], "valid": rows[:held_out], "test": test}
    return {name: write(work / f"trec.{name}.tsv", part) for name, part in parts.items()}


def sst2(data: Path, work: Path) -> Files:
    """Sentences of film reviews, 0 or 1."""
    rows = lines(data / "cls/sst2.dev.tsv.gz")
    random.Random(1).shuffle(rows)
    half = len(rows) // 2
    parts = {"train": lines(data / "cls/sst2.train.tsv.gz"), "valid": rows[:half], "test": rows[half:]}
    return {name: write(work / f"sst2.{name}.tsv", part) for name, part in parts.items()}


def etth1(data: Path, work: Path) -> Files:
    """Seven hourly series of a transformer station; the target is oil temperature."""
    header, *rows = lines(data / "ts/ETTh1.csv.gz")
    borders = {"train": (0, 12), "valid": (12, 16), "test": (16, 20)}
    return {
        name: write(work / f"etth1.{name}.csv", [header, *rows[start * MONTH : end * MONTH]])
        for name, (start, end) in borders.items()
    }


def mnist(data: Path, work: Path) -> Files:
    """Digits, a folder for each."""
    from PIL import Image

    images, labels = digits(data)
    order = np.random.default_rng(1).permutation(len(images))
    for part, (start, end) in HELD_OUT.items():
        for number in order[start:end]:
            file = work / f"mnist.{part}" / str(labels[number]) / f"{number:05}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[number]).save(file)
    return {part: str(work / f"mnist.{part}") for part in HELD_OUT}


def digits(data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The pictures, (10,000, 28, 28), and their digits."""
    images, labels = (gzip.decompress((data / f"vision/mnist-t10k-{name}.gz").read_bytes()) for name in IDX)
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)


IDX = ("images-idx3-ubyte", "labels-idx1-ubyte")


def shakespeare(data: Path, work: Path) -> Files:
    """The first nine tenths, up to the end of a speech, and the rest."""
    text = gzip.decompress((data / "lm/tinyshakespeare.txt.gz").read_bytes()).decode()
    border = text.rindex("\n\n", 0, len(text) * 9 // 10) + 2
    parts = {"train": text[:border], "valid": text[border:], "test": text[border:]}
    return {name: write(work / f"shakespeare.{name}.txt", part[:-1].split("\n")) for name, part in parts.items()}


def cmudict(data: Path, work: Path) -> Files:
    """Letters of words and their sounds."""
    return {
        part: write(work / f"cmudict.{part}.tsv", lines(data / f"g2p/cmudict.{part}.tsv.gz"))
        for part in ("train", "valid", "test")
    }


def columns(file: str) -> list[tuple[str, str]]:
    """The two columns of a table."""
    rows = Path(file).read_text(encoding="utf-8").splitlines()
    return [(first, second) for first, _, second in (row.rpartition("\t") for row in rows)]


def accuracy(model: Any, test: str) -> float:
    """Percent of texts or pictures."""
    return 100 * model.evaluate([test]).accuracy


def degrees(model: Any, test: str) -> float:
    """Mean absolute error in degrees."""
    return model.evaluate([test]).as_json()["model"]["mae_original"]


def tfidf(data: Path, files: Files) -> float:
    """TF-IDF and logistic regression."""
    return 100 * baselines.text_accuracy(columns(files["train"]), columns(files["test"]))


def linear(data: Path, files: Files) -> float:
    """A linear model of the same window."""
    train, test = (np.array([float(row.split(",")[-1]) for row in rows_of(files[part])]) for part in ("train", "test"))
    return baselines.linear_error(train, test, window=336, horizon=24)


def rows_of(file: str) -> list[str]:
    """The rows of a table, without its header."""
    return Path(file).read_text(encoding="utf-8").splitlines()[1:]


def neighbours(data: Path, files: Files) -> float:
    """The three nearest pictures."""
    images, labels = digits(data)
    order = np.random.default_rng(1).permutation(len(images))
    train, test = (order[slice(*HELD_OUT[part])] for part in ("train", "test"))
    pixels, classes = images.reshape(len(images), -1) / 255, labels.astype(np.int64)
    return 100 * baselines.neighbour_accuracy(pixels[train], classes[train], pixels[test], classes[test])


def ngrams(data: Path, files: Files) -> float:
    """Kneser-Ney 6-grams."""
    train, test = (Path(files[part]).read_text(encoding="utf-8") for part in ("train", "test"))
    return baselines.kneser_ney_loss(train, test)


def letter_windows(data: Path, files: Files) -> float:
    """The widest known window."""
    train, test = ([(word.split(), sounds.split()) for word, sounds in columns(files[p])] for p in ("train", "test"))
    model = baselines.LetterWindows(train)
    return 100 * baselines.error_rate([model.sounds(word) for word, _ in test], [sounds for _, sounds in test])


@dataclass(frozen=True)
class Corpus:
    """A data set, its cheap baseline, the page whose tables have the figures, and what is trained on it."""

    prepare: Callable[[Path, Path], Files]
    baseline: Callable[[Path, Files], float]
    cheap: str  # the first cell of the baseline's row on the page
    page: str
    unit: str
    score: Callable[[Any, str], float] = accuracy
    runs: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # recipe and settings, by the row's first cell


LABELS, FORECASTS, WRITING = (f"how-to/{name}.md" for name in ("labels", "forecasts", "language-models"))
CORPORA = {
    "trec": Corpus(
        trec, tfidf, "TREC, TF-IDF and logistic regression", LABELS, "%",
        runs={"TREC, `classify`": ("classify", [])},
    ),
    "sst2": Corpus(
        sst2, tfidf, "SST-2, TF-IDF and logistic regression", LABELS, "%",
        runs={"SST-2, `classify`": ("classify", [])},
    ),
    "mnist": Corpus(
        mnist, neighbours, "MNIST, three nearest neighbours", LABELS, "%",
        runs={"MNIST, `vit`": ("vit", ["model.image_size=28"])},
    ),
    "etth1": Corpus(
        etth1, linear, "a linear model of the same window", FORECASTS, " °C",
        score=degrees, runs={"`forecast` (Transformer)": ("forecast", [])},
    ),
    "shakespeare": Corpus(shakespeare, ngrams, "Kneser-Ney 6-grams of characters", WRITING, " nats"),
    "cmudict": Corpus(
        cmudict, letter_windows, "the widest known window of letters", "tutorials/researchers.md", "%"
    ),
}  # fmt: skip


def stated(page: str, first: str) -> tuple[float, float]:
    """The figure of a row of a page's table, and by how much another may differ: the range, and the rounding.

    >>> stated("| `vit` | [97.5 ± 0.4](results.md)% | 3 |", "`vit`")
    (97.5, 0.45)
    >>> stated("| linear | [1.108](results.md) |", "linear")
    (1.108, 0.0005)
    """
    for line in page.splitlines():
        if line.startswith(f"| {first} |") and (found := STATED.search(line)):
            rounding = 0.5 * 0.1 ** len(found[1].partition(".")[2])
            return float(found[1]), round(float(found[2] or 0) + rounding, 6)
    raise SystemExit(f"no row '{first}' with a linked figure")


def processor_seconds() -> float:
    """Of this process and its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run(name: str, corpus: Corpus, row: str, files: Files, out: Path, seed: int, settings: list[str]) -> dict[str, Any]:
    """Train and evaluate; the score, parameters and minutes of the processor."""
    recipe, own = corpus.runs[row]
    started = processor_seconds()
    folder = out / f"{name}-{recipe}-{seed}"
    resume = (folder / "checkpoints").exists()
    chosen = [*own, *settings, f"train.seed={seed}"]
    model = headwise.train([files["train"]], [files["valid"]], folder, recipe, chosen, resume=resume, show=False)
    minutes = (processor_seconds() - started) / 60
    score = corpus.score(model, files["test"])
    print(f"{name}, {row}, seed {seed}: {score:.4f}, {minutes:.1f} minutes", flush=True)
    return {"score": score, "minutes": minutes, "parameters": model.info()["parameters"]}


def main() -> None:
    """Convert, train, evaluate, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for corpora and model directories")
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--check", action="store_true", help="compare with the pages instead of writing results")
    parser.add_argument("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    about = machine.description(cores)
    settings = [f"train.threads={cores}", *options.set]
    rows, wrong, data = [], [], dict[str, Any]()
    for name in options.only:
        corpus = CORPORA[name]
        files = corpus.prepare(options.data, options.out / "corpora")
        page = (PAGES / corpus.page).read_text(encoding="utf-8")
        started, figures, data[name] = processor_seconds(), {}, {}
        try:
            figures[corpus.cheap] = [corpus.baseline(options.data, files)]
            data[name]["baseline"] = {"score": figures[corpus.cheap][0], "seconds": processor_seconds() - started}
            minutes = f"{(processor_seconds() - started) / 60:.2f}"
            rows.append([corpus.cheap, "", minutes, shown(figures[corpus.cheap]) + corpus.unit])
        except ModuleNotFoundError:
            print(f"{corpus.cheap}: left out; pip install scikit-learn", flush=True)
        for row in corpus.runs:
            runs = [run(name, corpus, row, files, options.out, seed, settings) for seed in options.seeds]
            data[name][row] = runs
            figures[row] = [one["score"] for one in runs]
            minutes = median(one["minutes"] for one in runs)
            rows.append([row, f"{runs[0]['parameters']:,}", f"{minutes:.1f}", shown(figures[row]) + corpus.unit])
        if options.check:
            wrong += [line for row, scores in figures.items() if (line := difference(page, row, scores))]
    table = machine.table(["data and recipe", "parameters", "minutes of a core", "median ± range of the seeds"], rows)
    print(table)
    if options.check:
        print("\n".join(wrong) or "The pages say what their commands give.")
        raise SystemExit(bool(wrong))
    machine.write_result(machine.result_path("tasks"), "The other tasks on public data", about, [table], {"runs": data})


def shown(scores: list[float]) -> str:
    """Median and range.

    >>> shown([97.5, 97.2, 97.4]), shown([1.1083])
    ('97.40 ± 0.30', '1.11')
    """
    return f"{median(scores):.2f}" + (f" ± {max(scores) - min(scores):.2f}" if len(scores) > 1 else "")


def difference(page: str, row: str, scores: list[float]) -> str:
    """What is wrong with a row, or nothing: the median is away from the page's by more than the page's range.

    >>> page = "| `vit` | [97.5 ± 0.4](results.md)% |"
    >>> difference(page, "`vit`", [97.1, 97.2, 99.0]), difference(page, "`vit`", [96.0, 96.4, 97.5])
    ('', '`vit`: 96.400, but the page says 97.5 ± 0.45')
    """
    value, spread = stated(page, row)
    found = median(scores)
    return "" if abs(found - value) <= spread else f"{row}: {found:.3f}, but the page says {value} ± {spread}"


if __name__ == "__main__":
    main()
