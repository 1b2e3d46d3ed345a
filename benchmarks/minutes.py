"""What a size of network reaches in so many minutes of one core, on four corpora: the table of `train --minutes`.

    python benchmarks/minutes.py --data ../shared/data --out runs/minutes
    python benchmarks/minutes.py --data ../shared/data --out runs/minutes --report

The minutes are those of one core of the processor that `SECONDS` was measured on: a size trains for as many updates as
take so long there. So a figure does not depend on what else the machine does. Not counted are the tokenizer and the one
validation, at the end. Interrupted runs are resumed; finished ones stay as they are. `--report` writes the results.
"""

import argparse
import gzip
import itertools
import json
import os
import statistics
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import machine
from python_documentation import split

from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.train import train_model

CORPORA = {
    "multi30k": "Multi30k, English to German",
    "multi30k-fr": "Multi30k, English to French",
    "tatoeba": "Tatoeba, English to German",
    "pydocs": "Python's documentation, English to French",
}
SIZES: dict[str, tuple[str, ...]] = {  # a recipe and its changes
    "tiny, dropout 0.1": ("tiny", "model.dropout=0.1"),
    "small, dropout 0.1": ("small", "model.dropout=0.1"),
    "tiny, dropout 0.3": ("tiny",),
    "small, dropout 0.2": ("small",),
}
MINUTES = (10, 30, 90)
WARM_UP = 4  # at most this part of the updates
# Seconds of an update on one core (AMD EPYC with AVX-512, VNNI and BF16, products in bfloat16): `tiny` as in
# seeds_1-core-cpu_2026-11-27.md with its validations, `small` as in sizes_1-core-cpu_2026-11-27.md
SECONDS = {"tiny": 0.26, "small": 0.87}


def write_corpora(data: Path, out: Path, names: Sequence[str]) -> None:
    """Training and validation pairs of each corpus, as `train.tsv` and `valid.tsv` in a folder."""
    for name in names:
        folder = out / "corpora" / name
        if not (folder / "valid.tsv").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            published = data / name.partition("-")[0]
            WRITERS[name](published if published.is_dir() else data, folder)


def _write_multi30k(data: Path, folder: Path) -> None:
    target = folder.name.partition("-")[2] or "de"
    for part, name in (("train", "train"), ("val", "valid")):
        sides = [(data / f"{part}.{side}.gz").read_bytes() for side in ("en", target)]
        texts = [gzip.decompress(side).decode("utf-8").splitlines() for side in sides]
        lines = [f"{src.strip()}\t{tgt.strip()}\n" for src, tgt in zip(*texts, strict=True)]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def _write_tatoeba(data: Path, folder: Path) -> None:
    for part in ("train", "valid"):
        text = gzip.decompress((data / f"deu-eng.{part}.tsv.gz").read_bytes())
        (folder / f"{part}.tsv").write_bytes(text)


def _write_pydocs(data: Path, folder: Path) -> None:
    with tarfile.open(data / "po-fr.tar.gz") as archive:
        archive.extractall(folder / "catalogues", filter="data")
    (catalogues,) = (folder / "catalogues").iterdir()  # the part of a file follows from its path below this folder
    split(catalogues, folder)


WRITERS = {
    "multi30k": _write_multi30k,
    "multi30k-fr": _write_multi30k,
    "tatoeba": _write_tatoeba,
    "pydocs": _write_pydocs,
}


def trained(out: Path, corpus: str, size: str, name: str, updates: int, *settings: str) -> Path:
    """Train, or resume a run; returns its folder."""
    recipe, *changes = SIZES[size]
    folder = out / name
    pairs = out / "corpora" / corpus
    common = [
        *(*changes, "train.threads=1", f"train.max_steps={updates}", f"train.validate_every={updates}"),
        *("decode.beam_size=5", "decode.length_penalty=1.0", *settings),
    ]
    request = TrainRequest(
        recipe, [f"{pairs}/train.tsv"], [f"{pairs}/valid.tsv"], str(folder), common, folder.exists(), "cpu",
        show=False,
    )  # fmt: skip
    if (reason := train_model(request)).startswith("SIG"):
        sys.exit(reason)
    return folder


def short(size: str) -> str:
    """The name of a size as a name of a folder."""
    return size.replace(",", "").replace(" ", "-")


def cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train what is not there yet; yields what each cell has reached."""
    out = options.out
    for budget in options.minutes:
        for size in options.sizes:
            for corpus, seed in itertools.product(options.corpora, options.seeds):
                name = f"{corpus}-{budget}-{short(size)}" + (f"-seed-{seed}" if seed > 1 else "")
                file = out / f"cells/{name}.json"
                if not file.is_file():
                    updates = machine.pick(round(60 * budget / SECONDS[SIZES[size][0]]), 2)
                    record = cell(out, corpus, size, budget, updates, [*options.set, f"train.seed={seed}"], name)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(json.dumps({**record, "seed": seed}) + "\n")
                yield json.loads(file.read_text())


def cell(
    out: Path, corpus: str, size: str, budget: int, updates: int, more: Sequence[str], name: str
) -> dict[str, Any]:
    """Train one size for these minutes."""
    recipe = SIZES[size][0]
    warm_up = min({"tiny": 500, "small": 2000}[recipe], max(1, updates // WARM_UP))
    settings = [f"train.warmup_steps={warm_up}", "train.validate_bleu=1000", *more]
    folder = trained(out, corpus, size, f"models/{name}", updates, *settings)
    found = json.loads((folder / "validation.jsonl").read_text().splitlines()[-1])
    about = json.loads((folder / "config.json").read_text())
    return {
        "corpus": corpus,
        "minutes": budget,
        "size": size,
        "updates": updates,
        "warm_up": warm_up,
        "loss": found["loss"],
        "bleu": found["bleu"],
        "data": about["corpus"],
        "precision": about["train"]["precision"],
    }


def report(found: Sequence[dict[str, Any]], about: dict[str, Any]) -> None:
    """Write the results."""
    sections = []
    for corpus, title in CORPORA.items():
        groups = dict[tuple[int, str, int], list[dict[str, Any]]]()
        for one in found:
            if one["corpus"] == corpus:
                groups.setdefault((one["minutes"], one["size"], one["updates"]), []).append(one)
        rows = [
            (minutes, size, f"{updates:,}", spread(runs, "bleu", 1), spread(runs, "loss", 3), len(runs))
            for (minutes, size, updates), runs in sorted(groups.items())
        ]
        if rows:
            header = ("minutes", "size", "updates", "BLEU", "loss", "seeds")
            sections.append(f"## {title}\n\n{machine.table(header, rows)}")
    path = machine.result_path("minutes")
    machine.write_result(path, "BLEU after so many minutes of one core, by size", about, sections, {"cells": found})


def spread(runs: Sequence[dict[str, Any]], name: str, digits: int) -> str:
    """The mean of a figure, with the standard deviation of a sample if there are several."""
    values = [run[name] for run in runs]
    text = f"{statistics.mean(values):.{digits}f}"
    return f"{text} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else text


def main() -> None:
    """Train the cells, or report those that are there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with those of the corpora")
    parser.add_argument("--out", type=Path, default=Path("runs/minutes"))
    parser.add_argument("--minutes", type=int, nargs="+", default=machine.pick(MINUTES, (10,)))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=machine.pick(list(SIZES), list(SIZES)[:1]))
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings, as for `headwise train`")
    parser.add_argument("--report", action="store_true", help="only write the results of the cells that are there")
    machine.add_quick_option(parser)
    options = parser.parse_args()
    os.environ[machine.CLOCK] = "cpu"
    about = machine.description(1)
    if options.report:
        found = [json.loads(file.read_text()) for file in sorted((options.out / "cells").glob("*.json"))]
        return report(found, about)
    write_corpora(options.data, options.out, options.corpora)
    for one in cells(options):
        print(f"{one['corpus']}, {one['minutes']} minutes, {one['size']}: {one['bleu']:.1f}", flush=True)


if __name__ == "__main__":
    main()
