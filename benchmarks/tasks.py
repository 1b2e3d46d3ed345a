"""The other tasks on public data: classification of questions (TREC) and sentences (SST-2), and a time series (ETTh1).

    python benchmarks/tasks.py --data DATA --out runs/tasks --cores 1 [--only trec sst2 etth1] [--set KEY=VALUE ...]

DATA holds `cls/trec.{train,test}.txt.gz`, `cls/sst2.{train,dev}.tsv.gz` and `ts/ETTh1.csv.gz`. Each is converted for
`headwise train`, trained with both of its recipes and evaluated; interrupted runs are resumed. A twentieth of TREC's
training questions is used for validation. SST-2's development sentences are split at random: one half for choosing the
model, the other for testing. ETTh1 is split as in the literature: 12 months, then 4, then 4, the last for testing.
"""

import argparse
import gzip
import json
import random
from pathlib import Path
from typing import Any

import machine

import headwise

RECIPES = {
    "trec": ("classify", "classify-lstm"),
    "sst2": ("classify", "classify-lstm"),
    "etth1": ("forecast", "forecast-lstm"),
}
MONTH = 30 * 24  # rows of ETTh1


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

    >>> labelled("DESC:manner How are cards made ?")
    'How are cards made ?\tDESC'
    """
    label, text = question.split(" ", 1)
    return f"{text}\t{label.split(':')[0]}"


def trec(data: Path, work: Path) -> dict[str, str]:
    """Questions and the six coarse classes."""
    rows = [labelled(line) for line in lines(data / "cls/trec.train.txt.gz")]
    random.Random(1).shuffle(rows)
    held_out = len(rows) // 20
    test = [labelled(line) for line in lines(data / "cls/trec.test.txt.gz")]
    parts = {"train": rows[held_out:], "valid": rows[:held_out], "test": test}
    return {name: write(work / f"trec.{name}.tsv", part) for name, part in parts.items()}


def sst2(data: Path, work: Path) -> dict[str, str]:
    """Sentences of film reviews, 0 or 1."""
    rows = lines(data / "cls/sst2.dev.tsv.gz")
    random.Random(1).shuffle(rows)
    half = len(rows) // 2
    parts = {"train": lines(data / "cls/sst2.train.tsv.gz"), "valid": rows[:half], "test": rows[half:]}
    return {name: write(work / f"sst2.{name}.tsv", part) for name, part in parts.items()}


def etth1(data: Path, work: Path) -> dict[str, str]:
    """Seven hourly series of a transformer station; the target is oil temperature."""
    header, *rows = lines(data / "ts/ETTh1.csv.gz")
    borders = {"train": (0, 12), "valid": (12, 16), "test": (16, 20)}
    return {
        name: write(work / f"etth1.{name}.csv", [header, *rows[start * MONTH : end * MONTH]])
        for name, (start, end) in borders.items()
    }


def seconds_of(folder: Path) -> float:
    """Seconds of training and validation, without interruptions and the last validation."""
    log = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    return sum(json.loads(line)["seconds"] for line in log.splitlines())


def run(what: str, recipe: str, files: dict[str, str], out: Path, settings: list[str]) -> tuple[Any, dict[str, Any]]:
    """Train with a recipe and evaluate; returns the report, parameters and minutes."""
    folder = out / f"{what}-{recipe}"
    resume = (folder / "checkpoints").exists()
    model = headwise.train([files["train"]], [files["valid"]], folder, recipe, settings, resume=resume, show=False)
    report = model.evaluate([files["test"]])
    about = {"parameters": model.info()["parameters"], "minutes": round(seconds_of(folder) / 60, 1)}
    print(what, recipe, about, report.render(), sep="\n", flush=True)
    return report, about


def main() -> None:
    """Convert, train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for corpora and model directories")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    cores = machine.prepare(options)
    about = machine.description(cores)
    convert = {"trec": trec, "sst2": sst2, "etth1": etth1}
    labels, series, data = [], [], {}
    settings = [f"train.threads={cores}", *options.set]
    for what in options.only:
        files = convert[what](options.data, options.out / "corpora")
        for recipe in RECIPES[what]:
            report, more = run(what, recipe, files, options.out, settings)
            data[f"{what} {recipe}"] = {**more, **report.as_json()}
            size = [f"{more['parameters']:,}", more["minutes"]]
            if what == "etth1":
                rows, forecasts = report.as_json(), [("model", recipe)]
                if recipe == RECIPES[what][-1]:  # the same for all
                    forecasts += [("seasonal", "value 24 hours before"), ("last", "last value")]
                for name, shown in forecasts:
                    figures = [f"{rows[name][key]:.4f}" for key in ("mae", "mse", "mae_original", "mse_original")]
                    series.append([shown, *(size if name == "model" else ["", ""]), *figures])
            else:
                labels.append([what, recipe, *size, f"{report.accuracy:.1%}", f"{report.macro_f1:.4f}"])
    sections = []
    if labels:
        header = ["data", "recipe", "parameters", "minutes", "accuracy", "macro F1"]
        sections.append(machine.table(header, labels))
    if series:
        header = ["forecast", "parameters", "minutes", "MAE", "MSE", "MAE, °C", "MSE, °C²"]
        text = "ETTh1, oil temperature from seven series, 96 hours in, 24 hours ahead, every window of the test months:"
        sections += [text, machine.table(header, series)]
    title = "Classification and forecasting on public data"
    machine.write_result(machine.result_path("tasks"), title, about, sections, {"runs": data})


if __name__ == "__main__":
    main()
