"""How well training uses a device: operations per second, their share of the peak (MFU), and target tokens per second.

    python benchmarks/utilisation.py --train corpus.en corpus.de [--recipes base big] [--device auto]
                                     [--settings "" train.compile=true]

Each run is `headwise train`, with 500 of the pairs for validation, which is not measured. The figures are medians of
the intervals in `metrics.jsonl`, without the first third of the updates; the rounds of all runs are interleaved.
"Operations" are those that the model needs, so neither padding nor recomputation counts
(`pytorch/training/utilisation.py`). Writes `results/utilisation_*`; the file says which device it was.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import machine

STEPS = machine.pick(90, 6)
SETTINGS = [
    f"train.max_steps={STEPS}",
    f"train.log_every={STEPS // 6}",
    f"train.validate_every={STEPS}",
    f"train.checkpoint_every={STEPS}",
    "train.validate_bleu=0",
    "train.average=1",
    *machine.pick([], ["model.d_model=32", "model.d_ff=64", "data.vocab_size=300", "train.tokens_per_batch=200"]),
]
FIGURES = {"tokens_per_second": "{:,.0f}", "tflops": "{:.3g}", "mfu": "{:.1%}", "padding": "{:.1%}"}


def measure(recipe: str, settings: str, options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """The logged intervals of a run, without those of the first updates."""
    valid = ["--valid", machine.pick("500pairs", "10pairs")]
    command = [
        "train",
        "--recipe",
        recipe,
        "--train",
        *options.train,
        *valid,
        "--out",
        folder,
        "--device",
        options.device,
    ]
    subprocess.run(
        [sys.executable, "-m", "headwise", *command, "--set", *SETTINGS, *settings.split()],
        check=True,
        stderr=sys.stderr,
    )
    lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines][2:]


def medians(intervals: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure that all intervals have."""
    intervals = list(intervals)
    known = [name for name in FIGURES if all(name in interval for interval in intervals)]
    return {name: statistics.median(interval[name] for interval in intervals) for name in known}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--recipes", nargs="+", default=machine.pick(["base", "big"], ["base"]))
    parser.add_argument(
        "--settings", nargs="+", default=[""], help='settings of each run, such as "" train.compile=true'
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=machine.pick(3, 1))
    machine.add_machine_options(parser)
    options = parser.parse_args()
    about = machine.description(machine.prepare(options))
    runs = [(recipe, settings) for recipe in options.recipes for settings in options.settings]
    intervals: dict[tuple[str, str], list[dict[str, Any]]] = {run: [] for run in runs}
    for _ in range(options.rounds):
        for run in runs:
            with tempfile.TemporaryDirectory() as folder:
                intervals[run] += measure(*run, options, folder)
    found = {run: medians(some) for run, some in intervals.items()}
    rows = [
        [recipe, settings or "-", *(style.format(own[name]) if name in own else "-" for name, style in FIGURES.items())]
        for (recipe, settings), own in found.items()
    ]
    text = machine.table(["recipe", "settings", "target tokens/s", "TFLOPS", "MFU", "padding"], rows)
    print(text)
    data = [
        {"recipe": recipe, "settings": settings, "intervals": some} for (recipe, settings), some in intervals.items()
    ]
    where = f"Device: {device_of(options.device)}."
    machine.write_result(
        machine.result_path("utilisation"),
        "Utilisation of the device by training",
        about,
        [where, text],
        {"runs": data},
    )


def device_of(name: str) -> str:
    """The name of the device that a run uses."""
    import torch

    from headwise.device import choose_device

    device = choose_device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "the processor"


if __name__ == "__main__":
    main()
