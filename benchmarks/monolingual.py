"""Little parallel but more monolingual text: gains of back-translation and of denoising pre-training.

    python benchmarks/monolingual.py multi30k --data DATA --out runs/mono [--pair en-de] [--recipe tiny] [--keep 2 4 10]
                                              [--ways pairs back denoise] [--lines N] [--set KEY=VALUE ...] [--cores 0]

DATA as for `quality.py`. Every n-th pair is kept, for each n of `--keep`; only the targets of the others are used. The
methods: `pairs`, the kept pairs alone; `back`, also the other targets, back-translated with a tag by a model of the
reverse direction that was trained on the kept pairs; `denoise`, first denoising pre-training on all text, both sides of
the pairs and the other targets. All have the recipe's updates; pre-training and the reverse model have as many again.
Prints a Markdown table for each test set, detokenised sacreBLEU. Interrupted runs are resumed, finished ones reused.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
from quality import Task, read

import headwise
from headwise.cli import main as command
from headwise.evaluate.report import evaluate_model
from headwise.text.files.corpus import parse_corpora, read_pairs
from headwise.text.files.sources import Pair

WAYS = {"pairs": "pairs alone", "back": "and back-translation, tagged", "denoise": "denoising pre-training, then pairs"}
TAG = "<bt>"
SCORES = "scores.json"


def part(pairs: Sequence[Pair], keep: int) -> tuple[list[Pair], list[Pair]]:
    """Every n-th pair, and the others.

    >>> part([("a", "A"), ("b", "B"), ("c", "C")], 2)
    ([('a', 'A'), ('c', 'C')], [('b', 'B')])
    """
    return list(pairs[::keep]), [pair for row, pair in enumerate(pairs) if row % keep]


def write(path: Path, texts: Sequence[str]) -> Path:
    """Write one text per line; line breaks become spaces."""
    path.write_text("".join(f"{' '.join(text.split())}\n" for text in texts), encoding="utf-8")
    return path


class Part:
    """A part of the pairs, in its own folder, and the models trained on it."""

    def __init__(self, folder: Path, task: Task, keep: int, options: argparse.Namespace, settings: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.options, self.settings, self.tests = folder, options, settings, task.tests
        pairs = list(read_pairs(parse_corpora([str(path) for path in task.train])))[: options.lines]
        valid = list(read_pairs(parse_corpora([str(path) for path in task.valid])))
        kept, others = part(pairs, keep)
        self.size, self.more = len(kept), len(others)
        self.train = [write(folder / f"train.{i}", [pair[i] for pair in kept]) for i in (0, 1)]
        self.valid = [write(folder / f"valid.{i}", [pair[i] for pair in valid]) for i in (0, 1)]
        self.text = write(folder / "text.1", [pair[1] for pair in others])

    def train_model(self, name: str, train: Sequence[Path], valid: Sequence[Path], **more: Any) -> Path:
        """Train a model, or resume its run; returns its folder."""
        out, options = self.folder / name, self.options
        recipe, settings = ("", []) if "init" in more else (options.recipe, self.settings)  # those of the model
        resume = (out / "checkpoints").exists()
        headwise.train(train, valid, out, recipe, settings, resume, options.device, **more)
        return out

    def model(self, way: str) -> Path:
        """A translation model trained by one of the methods."""
        if way == "back":
            return self.train_model(way, [*self.train, self.synthetic()], self.valid, special=[TAG])
        if way == "denoise":
            stage = self.train_model("stage", [*self.train, self.text], self.valid, task="denoise")
            return self.train_model(way, self.train, self.valid, init=stage)
        return self.train_model(way, self.train, self.valid)

    def synthetic(self) -> Path:
        """The other targets with their back-translations."""
        out = self.folder / "synthetic.jsonl"
        if not out.is_file():
            reverse = self.train_model("reverse", self.train[::-1], self.valid[::-1])
            arguments = ["backtranslate", str(reverse), "--text", str(self.text), "--tag", TAG, "-o", str(out)]
            if command([*arguments, "--device", self.options.device]):
                raise SystemExit(f"{out}: back-translation failed")
        return out

    def scores(self, way: str) -> dict[str, float]:
        """BLEU of each test set."""
        file = self.folder / way / SCORES
        if not file.is_file():
            model = headwise.load(self.model(way), self.options.device)
            reports = {name: evaluate_model(model, src, [ref]) for name, (src, ref) in self.tests.items()}
            file.write_text(json.dumps({name: report.scores["BLEU"].score for name, report in reports.items()}))
        return json.loads(file.read_text())


def tables(found: dict[str, dict[str, dict[str, float]]], ways: Sequence[str]) -> str:
    """One table per test set: a row for each part, a column for each method.

    >>> print(tables({"9 pairs, 9 lines": {"pairs": {"test": 1.0}, "back": {"test": 2.5}}}, ["pairs", "back"]))
    test
    <BLANKLINE>
    | BLEU | pairs alone | and back-translation, tagged |
    | --- | --- | --- |
    | 9 pairs, 9 lines | 1.00 | 2.50 |
    """
    tests = next(iter(next(iter(found.values())).values()))
    parts = []
    for test in tests:
        rows = [[name, *(f"{scores[way][test]:.2f}" for way in ways)] for name, scores in found.items()]
        parts.append(f"{test}\n\n{machine.table(['BLEU', *(WAYS[way] for way in ways)], rows)}")
    return "\n\n".join(parts)


def main() -> None:
    """Train what is missing, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=("multi30k", "tatoeba"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de", help="source-target (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for parts and models")
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--keep", nargs="+", type=int, default=[2, 4, 10], help="keep every n-th pair")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--lines", type=int, help="use the first N pairs")
    parser.add_argument("--set", nargs="+", default=["train.max_steps=4000"], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    settings = [f"train.threads={machine.prepare(options)}", *options.set]
    options.text = "raw"
    task = read(options, *options.pair.split("-"), work=options.out / "corpus")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for keep in options.keep:
        there = Part(options.out / f"every-{keep}", task, keep, options, settings)
        found[f"{there.size:,} pairs, {there.more:,} lines"] = {way: there.scores(way) for way in options.ways}
        print(tables(found, options.ways), flush=True)


if __name__ == "__main__":
    main()
