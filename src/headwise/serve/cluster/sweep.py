"""Hyperparameter sweeps: each trial is a run of `headwise train` in its own folder, started and stopped by Ray Tune.

A trial follows the `validation.jsonl` of its run and reports every line. The scheduler (ASHA: Li et al. 2020,
arXiv:1810.05934) stops trials that are behind at the same number of updates. Stopped runs keep their checkpoints, so
the sweep can be resumed. See `headwise.lab.results` for tables of runs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.evaluate.logs import VALIDATION_LOG
from headwise.serve.cluster.connection import ray_connection

PROGRAM = ("-m", "headwise.cli.trial")
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Sweep:
    """A sweep."""

    trials: Mapping[str, Sequence[str]]  # arguments of `headwise train` by folder name
    out: Path
    updates: int  # maximum of a run
    validate_every: int  # updates
    gpu: bool = False
    to_the_end: bool = False  # stop no trial early


def trials_from(settings: Sequence[str]) -> dict[str, list[str]]:
    """Every combination of settings with several values, by folder name; other settings apply to all.

    >>> trials_from(["train.learning_rate=1e-3,3e-3", "train.betas=[0.9, 0.98]"])
    {'learning_rate-1e-3': ['train.learning_rate=1e-3', 'train.betas=[0.9, 0.98]'],
     'learning_rate-3e-3': ['train.learning_rate=3e-3', 'train.betas=[0.9, 0.98]']}

    Raises:
        UserError: no setting has several values, or a value is repeated.
    """
    several = {key: _values(text) for key, _, text in (setting.partition("=") for setting in settings)}
    chosen = {key: several[key] for key in sorted(several, key="train.seed".__eq__) if len(several[key]) > 1}
    if not chosen:
        raise UserError("--set: at least one setting needs several values, such as train.learning_rate=1e-3,3e-3")
    for key, values in chosen.items():
        if len({*values}) < len(values):
            raise UserError(f"--set {key}={','.join(values)}: a value is repeated")
    common = [f"{key}={values[0]}" for key, values in several.items() if len(values) == 1]
    found = {}
    for values in product(*chosen.values()):
        pairs = list(zip(chosen, values, strict=True))
        name = "_".join(f"{key.rpartition('.')[2]}-{value}" for key, value in pairs).replace(os.sep, "-")
        found[name] = [f"{key}={value}" for key, value in pairs] + common
    return found


def _values(text: str) -> list[str]:
    """Values separated by commas, except inside brackets."""
    values, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            values.append("")
        else:
            values[-1] += letter
    return [value.strip() for value in values]


def sweep(wanted: Sweep, address: str) -> list[str]:
    """Run the trials, as many at once as the cluster has room for; returns the names of failed ones.

    Raises:
        UserError: Ray is not installed, or no cluster is at `address`.
    """
    with ray_connection(address):
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

        asha = {"time_attr": "updates", "max_t": wanted.updates, "grace_period": wanted.validate_every}
        places = {"gpu" if wanted.gpu else "cpu": 1.0}
        kept = wanted.out / ".ray"
        tuner = tune.Tuner(
            tune.with_resources(_trial, places),
            param_space={"trial": tune.grid_search(list(wanted.trials)), "sweep": wanted},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                scheduler=FIFOScheduler() if wanted.to_the_end else ASHAScheduler(**asha, reduction_factor=3),
            ),
            run_config=tune.RunConfig(
                name="trials", storage_path=str(kept), verbose=0, failure_config=tune.FailureConfig(max_failures=2)
            ),
        )
        with redirect_stdout(sys.stderr):  # Ray prints to standard output
            results = tuner.fit()
        failed = [result.config["trial"] for result in results if result.error and result.config]
        shutil.rmtree(kept, ignore_errors=True)
        return failed


def _trial(config: Mapping[str, Any]) -> None:
    """In a worker: one run, with a report for every validation."""
    from ray import tune

    wanted, name = config["sweep"], config["trial"]
    folder = wanted.out / name
    command = [sys.executable, *PROGRAM, *wanted.trials[name], "--out", str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.log").open("ab") as log:
        run = subprocess.Popen([*command, "--resume"], stdin=subprocess.PIPE, stdout=log, stderr=log)
        for record in _validations(folder / VALIDATION_LOG, run):
            tune.report({"loss": record["loss"], "updates": record["step"]})
        if run.wait():
            raise RuntimeError(f"{name}: headwise train ended with {run.returncode}; see {log.name}")


def _validations(path: Path, run: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """Every line of the log, until the run has ended."""
    seen, ended = 0, False
    while not ended:
        ended = run.poll() is not None
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        yield from (json.loads(line) for line in lines[seen:])
        seen = max(seen, len(lines))
        time.sleep(0 if ended else POLL_SECONDS)
