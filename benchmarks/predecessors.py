"""All translation recipes of the same size on Multi30k: the Transformer compared with its predecessors.

    python benchmarks/predecessors.py --data DATA --out runs/predecessors --cores 1
                                      [--recipes tiny conv ...] [--pair en-de] [--set KEY=VALUE ...] [--no-train]

DATA as for `quality.py`. The recipes have the same data, vocabulary, batches, schedule and number of updates, and
parameters within 5%; `--set` changes all of them. Interrupted runs are resumed, finished ones only scored; `--no-train`
only scores existing runs. Training time is that of the trainer's log, validation included. Decoding speed: the first
test set with the recipes' beam search, where models take turns on a tenth of it. BLEU by source length (Bahdanau 2015,
figure 2): also the first test set.
Writes `results/predecessors_*`.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from figures import learning_curves
from quality import Task, multi30k
from turns import Spread, spread, take_turns

import headwise
from headwise.evaluate.report import TranslationReport, evaluate_model
from headwise.lab.study.translators import ALL, LONGEST, bleu_by_length

RECIPES = ("paper-tiny", "conv", "bahdanau", "luong", "lstm", "gru", "rnn")
TARGET_BLEU = 30.0
TURNS = 10
ENDS = (8, 12, 16, 20, LONGEST)  # upper ends of the source length buckets, in words


@dataclass(frozen=True)
class Run:
    """A trained recipe and the figures of its log."""

    recipe: str
    model: Any
    updates: int
    seconds: float  # of training, validation included
    tokens_per_second: float  # target tokens, median over the log
    curve: list[tuple[int, float]]  # update, validation BLEU
    seconds_to_target: float | None  # until validation reached TARGET_BLEU; None: never


def train(recipe: str, task: Task, out: Path, settings: list[str]) -> None:
    """Train with the recipe, or resume its run."""
    folder = out / recipe
    if (folder / "model.safetensors").is_file():
        return
    resume = (folder / "checkpoints").exists()
    headwise.train(task.train, task.valid, folder, recipe, settings, resume=resume, device="cpu")


def read_run(recipe: str, folder: Path) -> Run:
    """The run in `folder`."""
    training, validation = (read_log(folder / name) for name in ("metrics.jsonl", "validation.jsonl"))
    steps = [line for line in validation if line["what"] == f"step {line['step']}"]  # without averaged models
    speeds = [line["tokens_per_second"] for line in training]
    reached = next((line["step"] for line in steps if line.get("bleu", 0.0) >= TARGET_BLEU), None)
    return Run(
        recipe,
        headwise.load(folder, device="cpu"),
        training[-1]["step"],
        seconds_until(training, validation, training[-1]["step"]),
        spread(speeds).median,
        [(line["step"], line["bleu"]) for line in steps if "bleu" in line],
        None if reached is None else seconds_until(training, validation, reached),
    )


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def seconds_until(training: list[dict[str, Any]], validation: list[dict[str, Any]], step: int) -> float:
    """Time until the end of the validation after `step`.

    >>> seconds_until([{"step": 1, "seconds": 2.0}, {"step": 2, "seconds": 3.0}], [{"step": 1, "seconds": 0.5}], 1)
    2.5
    """
    return sum(line["seconds"] for line in [*training, *validation] if line["step"] <= step)


def speeds(runs: list[Run], sources: list[str]) -> dict[str, Spread]:
    """Sentences a second of each model; the models take turns."""
    parts = [sources[turn::TURNS] for turn in range(TURNS)]

    def translate(run: Run, turn: int) -> float:
        started = machine.now()
        run.model.translate(parts[turn])
        return machine.now() - started

    contenders = {run.recipe: (lambda turn, run=run: translate(run, turn)) for run in runs}
    seconds = take_turns(contenders, TURNS, warm_up=1)
    rates = {name: [len(part) / s for part, s in zip(parts, found, strict=True)] for name, found in seconds.items()}
    return {name: spread(found) for name, found in rates.items()}


def by_length(run: Run, sources: list[str], references: list[str]) -> list[dict[str, Any]]:
    """BLEU of each bucket of source length."""
    outputs = [translation.text for translation in run.model.translate(sources)]
    rows = bleu_by_length(list(zip(sources, references, strict=True)), outputs, ENDS)
    return [row for row in rows if row["bucket"] != ALL]


def length_table(found: dict[str, list[dict[str, Any]]]) -> str:
    """A row for each recipe, a column for each bucket."""
    buckets = next(iter(found.values()))
    starts = [1, *(bucket["bucket"] + 1 for bucket in buckets)]
    ends = ["more" if bucket["bucket"] == LONGEST else bucket["bucket"] for bucket in buckets]
    columns = [
        f"{start} to {end} words ({bucket['sentences']})"
        for start, end, bucket in zip(starts, ends, buckets, strict=False)
    ]
    rows = [[recipe, *(f"{bucket['bleu']:.1f}" for bucket in line)] for recipe, line in found.items()]
    return machine.table(["BLEU of sources of", *columns], rows)


def row(run: Run, reports: dict[str, TranslationReport], speed: Spread) -> list[str]:
    """A row of the table."""
    scores = [f"{report.scores['BLEU'].score:.2f}" for report in reports.values()]
    target = "never" if run.seconds_to_target is None else f"{run.seconds_to_target / 60:.0f}"
    size = f"{run.model.info()['parameters']:,}"
    times = [f"{run.tokens_per_second:,.0f}", f"{run.seconds / 60:.0f}", target]
    return [run.recipe, size, f"{run.updates:,}", *scores, *times, str(speed)]


def main() -> None:
    """Train what is missing, score, time, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model directories")
    parser.add_argument("--pair", default="en-de", help="source-target (default: %(default)s)")
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    parser.add_argument("--no-train", action="store_true", help="only score existing runs")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    about = machine.description(cores)
    task = multi30k(options.data, *options.pair.split("-"))
    for recipe in [] if options.no_train else options.recipes:
        train(recipe, task, options.out, [f"train.threads={cores}", *options.set])
    there = [recipe for recipe in options.recipes if (options.out / recipe / "model.safetensors").is_file()]
    runs = [read_run(recipe, options.out / recipe) for recipe in there]
    reports = {
        run.recipe: {name: evaluate_model(run.model, src, [ref]) for name, (src, ref) in task.tests.items()}
        for run in runs
    }
    sources, references = next(iter(task.tests.values()))
    lengths = {run.recipe: by_length(run, sources, references) for run in runs}
    write(runs, reports, speeds(runs, sources), lengths, about)


def write(
    runs: list[Run],
    reports: dict[str, dict[str, TranslationReport]],
    speed: dict[str, Spread],
    lengths: dict[str, list[dict[str, Any]]],
    about: Any,
) -> None:
    """Write the table, the curves and every number."""
    path = machine.result_path("predecessors")
    tests = [f"BLEU {name}" for name in next(iter(reports.values()))]
    more = ["tokens/s in training", "minutes", f"minutes to BLEU {TARGET_BLEU:.0f}", "sentences/s in decoding"]
    rows = [row(run, reports[run.recipe], speed[run.recipe]) for run in runs]
    text = machine.table(["recipe", "parameters", "updates", *tests, *more], rows)
    first = next(iter(next(iter(reports.values())).values()))
    beam, penalty = first.decoding.beam_size, first.decoding.length_penalty
    signature = f"`{first.scores['BLEU'].signature}`, beam {beam}, length penalty {penalty}; to BLEU 30: on validation."
    figure = learning_curves(path, {run.recipe: run.curve for run in runs}, "updates", "validation BLEU")
    data = {
        run.recipe: {
            "seconds": run.seconds,
            "curve": run.curve,
            "sentences_per_second": vars(speed[run.recipe]),
            "by_length": lengths[run.recipe],
            "scores": {name: report.as_json() for name, report in reports[run.recipe].items()},
        }
        for run in runs
    }
    sections = [
        text,
        signature,
        f"By length of the source, {tests[0]}:",
        length_table(lengths),
        f"![validation BLEU by update]({figure.name})",
    ]
    machine.write_result(path, "Multi30k: every recipe of one size", about, sections, data)
    print(text)


if __name__ == "__main__":
    main()
