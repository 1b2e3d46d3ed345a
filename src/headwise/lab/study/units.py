"""Units of work: one condition with one seed, each stored on disk as soon as it is measured.

A unit's file name depends on everything that determines its result, and on nothing else: claims with the same `measure`
share the units of equal conditions, an interrupted study continues where it was, and a changed setting or source is
measured anew. Several processes may share a folder.
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

from headwise.lab.study.claim import Claim
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
        """The condition by field, without its folder, so that data may move."""
        return {key: value for key, value in asdict(self.condition).items() if key != "folder"}

    def key(self, machine: str) -> str:
        """A name from everything that the result depends on; the `machine` only if time is measured."""
        experiment = self.claim.measure.__module__.rpartition(".")[2]
        identity = {
            "sources": fingerprint_of(self.claim),
            "condition": self.settings,
            "seed": self.seed,
            "machine": machine if self.claim.timed else "",
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        return f"{experiment}-{digest}"


@dataclass(frozen=True)
class Store:
    """A folder with a small JSON file for each unit that has been measured; they contain no weights."""

    folder: Path
    machine: str

    def path(self, unit: Unit) -> Path:
        """The file of a unit, measured or not."""
        return self.folder / f"{unit.key(self.machine)}.json"

    def read(self, unit: Unit) -> dict[str, Any] | None:
        """What was measured; None if nothing was yet."""
        path = self.path(unit)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def add(self, units: dict[str, dict[str, Any]]) -> None:
        """Store the units of an earlier report under their keys, except those that are here already."""
        for key, unit in units.items():
            path = self.folder / f"{Path(key).name}.json"
            if not path.is_file():
                store(path, json.dumps(unit))


def measure_unit(unit: Unit) -> dict[str, Any]:
    """Measure one unit, times on one thread; its rows do not depend on earlier units, except for times."""
    started, before, threads = time.perf_counter(), load_average(), torch.get_num_threads()
    torch.set_num_threads(1 if unit.claim.timed else threads)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(unit.seed)
            random.seed(unit.seed)
            rows = unit.claim.measure(unit.condition, unit.seed)
    finally:
        torch.set_num_threads(threads)
    seconds = round(time.perf_counter() - started, 3)
    return {"seed": unit.seed, "seconds": seconds, "load": before, "condition": unit.settings, "rows": rows}


def store(path: Path, text: str) -> None:
    """Write a file that appears when it is complete."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def measure_all(units: Sequence[Unit], work: Store, jobs: int) -> Iterator[Unit]:
    """Measure units, and yield each when it is stored: times one at a time in this process, others in `jobs`."""
    if jobs > 1 and not any(unit.claim.timed for unit in units):
        yield from _in_processes(units, work, jobs)
        return
    for unit in units:
        store(work.path(unit), json.dumps(measure_unit(unit)))
        yield unit


def _in_processes(units: Sequence[Unit], work: Store, jobs: int) -> Iterator[Unit]:
    """One unit at a time in each of several processes, which end when this one does, also if it is killed."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=(threads,)) as pool:
        try:
            tasks = {
                pool.submit(_work, unit.claim.name, unit.condition, unit.seed, work.path(unit)): unit for unit in units
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
    store(path, json.dumps(measure_unit(Unit(CLAIMS[claim], condition, seed))))
