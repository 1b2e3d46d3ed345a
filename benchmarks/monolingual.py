"""Little parallel text, more of one language: what back-translation and a denoising stage add to a part of the pairs.

    python benchmarks/monolingual.py multi30k --data DATA --out runs/mono [--pair en-de] [--recipe tiny] [--keep 2 4 10]
                                              [--ways pairs back denoise] [--lines N] [--set KEY=VALUE ...] [--cores 0]

DATA as `quality.py` takes it. Every n-th pair is kept, for each n of `--keep`; of the others only the target is known.
The ways: `pairs`, those kept alone; `back`, and the other targets translated back by a model of the other direction,
trained on the kept pairs, tagged; `denoise`, a stage first that learns from all the text there is, both sides of the
pairs and the other targets. All have the recipe's updates, the stage and the other direction as many again. Prints a
Markdown table for each test set, detokenised sacreBLEU. Started again, it goes on where it was; what is scored is not
done again.
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
from headwise.data.corpus import parse_corpora, read_pairs
from headwise.data.sources import Pair
from headwise.evaluate.report import evaluate_model

WAYS = {"pairs": "pairs alone", "back": "and back-translation, tagged", "denoise": "a denoising stage, then pairs"}
TAG = "<bt>"
SCORES = "scores.json"


def part(pairs: Sequence[Pair], keep: int) -> tuple[list[Pair], list[Pair]]:
    """Every n-th pair, and the others.

    >>> part([("a", "A"), ("b", "B"), ("c", "C")], 2)
    ([('a', 'A'), ('c', 'C')], [('b', 'B')])
    """
    return list(pairs[::keep]), [pair for row, pair in enumerate(pairs) if row % keep]


def write(path: Path, texts: Sequence[str]) -> Path:
    """A text a line; what would end a line becomes a blank."""
    path.write_text("".join(f"{' '.join(text.split())}\n" for text in texts), encoding="utf-8")
    return path


class Part:
    """A part of the pairs, in a folder of its own, and the models trained on it."""

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

    def learn(self, name: str, train: Sequence[Path], valid: Sequence[Path], **more: Any) -> Path:
        """The folder of a model, trained or gone on with."""
        out, options = self.folder / name, self.options
        recipe, settings = ("", []) if "init" in more else (options.recipe, self.settings)  # the model's own
        resume = (out / "checkpoints").exists()
        headwise.train(train, valid, out, recipe, settings, resume, options.device, **more)
        return out

    def model(self, way: str) -> Path:
        """A translator by one of the ways."""
        if way == "back":
            return self.learn(way, [*self.train, self.synthetic()], self.valid, special=[TAG])
        if way == "denoise":
            stage = self.learn("stage", [*self.train, self.text], self.valid, task="denoise")
            return self.learn(way, self.train, self.valid, init=stage)
        return self.learn(way, self.train, self.valid)

    def synthetic(self) -> Path:
        """The other targets, translated back."""
        out = self.folder / "synthetic.jsonl"
        if not out.is_file():
            reverse = self.learn("reverse", self.train[::-1], self.valid[::-1])
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
    """One table a test set: a row for each part, a column for each way.

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
    """Train what is not trained, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=("multi30k", "tatoeba"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pair", default="en-de", help="source-target (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for parts and models")
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--keep", nargs="+", type=int, default=[2, 4, 10], help="every so manieth pair is kept")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--lines", type=int, help="take the first so many pairs only")
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
