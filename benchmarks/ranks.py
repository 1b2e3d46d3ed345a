"""Training with two processes of one thread each, compared with one process of two threads; both do the same updates.

    python benchmarks/ranks.py --train corpus.en corpus.de [--recipe tiny] [--updates 20] [--turns 5]

Both run `headwise train` for that many updates. The speed is that of the last interval in the run's log, so starting
and tokenising do not count. An update has two batches in both: one per process, or two accumulated. Prints target
tokens per second and the ratio turn by turn. Needs two idle cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import machine
from turns import spread

CONTENDERS = {
    "two processes of one thread": ["--devices", "2", "--set", "train.threads=1", "train.accumulate=1"],
    "one process of two threads": ["--set", "train.threads=2", "train.accumulate=2"],
}


def speed(options: Sequence[str], updates: int, train: Sequence[str], recipe: str) -> float:
    """Target tokens per second of a run's last interval."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model"
        never = [f"train.{name}={10 * updates}" for name in ("validate_every", "checkpoint_every")]
        short = [f"train.max_steps={updates}", f"train.log_every={updates // 2}", "train.validate_bleu=0", *never]
        data = ["--train", *train, "--valid", "20pairs", "--recipe", recipe, "--device", "cpu", "--out", str(out)]
        command = [sys.executable, "-m", "headwise", "train", *data, *options, "--set", *short]
        subprocess.run(command, check=True, capture_output=True)
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return json.loads(lines[-1])["tokens_per_second"]


def main() -> None:
    """Take turns and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--updates", type=int, default=machine.pick(20, 2))
    parser.add_argument("--turns", type=int, default=machine.pick(5, 1))
    machine.add_quick_option(parser)
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for turn in range(options.turns):
        order = list(CONTENDERS) if turn % 2 else list(reversed(CONTENDERS))
        for name in order:
            speeds[name].append(speed(CONTENDERS[name], options.updates, options.train, options.recipe))
    for name, values in speeds.items():
        print(f"{name}: {spread(values)} target tokens per second")
    two, one = speeds.values()
    print(f"ratio: {spread([a / b for a, b in zip(two, one, strict=True)])}")


if __name__ == "__main__":
    main()
