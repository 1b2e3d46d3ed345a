"""Units of work: one condition of one claim with one seed, each stored on disk as soon as it is measured.

A unit's file name depends on everything that determines its result, so an interrupted study continues where it was,
and a changed setting or source is measured anew. Several processes may share a folder.
"""

import hashlib
import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.lab.study.claim import Claim, Plan
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.fingerprint import fingerprint_of
from headwise.lab.study.machine import load_average


@dataclass(frozen=True)
class Unit:
    """One measurement: what a claim measures under one condition with one seed."""

    claim: Claim
    condition: Any
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """The condition by field, without folders, so that data may move."""
        return {key: _without_folder(value) for key, value in asdict(self.condition).items() if key != "folder"}

    def key(self, machine: str) -> str:
        """A file name from everything that the result depends on; the `machine` only if time is measured."""
        identity = {
            "sources": fingerprint_of(self.claim),
            "claim": self.claim.name,
            "condition": self.settings,
            "seed": self.seed,
            "machine": machine if self.claim.timed else "",
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.claim.name}-{digest}.json"


def _without_folder(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def measure_unit(unit: Unit) -> dict[str, Any]:
    """Measure one unit; its rows do not depend on earlier units, except for times."""
    started, before = time.perf_counter(), load_average()
    with torch.random.fork_rng():
        torch.manual_seed(unit.seed)
        random.seed(unit.seed)
        rows = unit.claim.measure(unit.condition, unit.seed)
    seconds = round(time.perf_counter() - started, 3)
    about = {"claim": unit.claim.name, "seed": unit.seed, "seconds": seconds, "load": before}
    return {**about, "condition": unit.settings, "rows": rows}


def measure_and_store(unit: Unit, path: Path) -> None:
    """Measure a unit into a file that appears when it is complete."""
    store(path, json.dumps(measure_unit(unit)))


def store(path: Path, text: str) -> None:
    """Write a file that appears when it is complete."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def measure_all(units: Sequence[Unit], work: Path, machine: str, jobs: int) -> Iterator[Unit]:
    """Measure the units without a file, and yield each when it is stored.

    Units that measure time run first, one at a time in this process; the others in `jobs` processes.
    """
    waiting = [unit for unit in units if not (work / unit.key(machine)).is_file()]
    timed = [unit for unit in waiting if unit.claim.timed or jobs == 1]
    for unit in timed:
        measure_and_store(unit, work / unit.key(machine))
        yield unit
    if len(timed) < len(waiting):
        yield from _in_processes([unit for unit in waiting if unit not in timed], work, machine, jobs)


def _in_processes(units: Sequence[Unit], work: Path, machine: str, jobs: int) -> Iterator[Unit]:
    """One unit at a time in each of several processes, which end when this one does, also if it is killed."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=(threads,)) as pool:
        try:
            tasks = {
                pool.submit(_work, unit.claim.name, unit.condition, unit.seed, work / unit.key(machine)): unit
                for unit in units
            }
            for task in as_completed(tasks):
                task.result()
                yield tasks[task]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a traceback
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(claim: str, condition: Any, seed: int, path: Path) -> None:
    measure_and_store(Unit(CLAIMS[claim], condition, seed), path)


def tuning_units(claim: Claim, plan: Plan) -> list[Unit]:
    """The first seed of every condition, on which learning rates are selected."""
    return [Unit(claim, condition, 1) for condition in claim.conditions(plan)]


def seed_units(claim: Claim, conditions: Sequence[Any], seeds: int) -> list[Unit]:
    """The other seeds of the selected conditions, ordered by seed: compared conditions are measured close in time."""
    return [Unit(claim, condition, seed) for seed in range(2, seeds + 1) for condition in conditions]


def read_unit(path: Path) -> dict[str, Any]:
    """A stored unit."""
    return json.loads(path.read_text(encoding="utf-8"))
