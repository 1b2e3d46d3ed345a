"""The study as a list of units of work, each stored on disk as soon as it is done.

A unit is one condition of one claim with one seed. Its file name depends on all of its settings, so an interrupted
study continues where it was, and a changed setting is measured anew. `report.py` writes the report.
"""

import hashlib
import json
import os
import platform
import random
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from headwise.device import choose_device
from headwise.errors import UserError, unknown
from headwise.study.claim import Claim, Plan, Row, Scale
from headwise.study.claims import CLAIMS
from headwise.study.report import Finding, write_report
from headwise.training.allocator import keep_freed_memory

FORMAT = 2  # of a unit's file; raise it when a measurement changes its meaning


@dataclass(frozen=True)
class StudyRequest:
    """The claims to measure, and where to write the report."""

    out: Path
    only: Sequence[str] = ()  # names of claims; none = all
    seeds: int = 0  # for every claim; 0 = each claim's own number
    plan: Plan = field(default_factory=Plan)
    command: str = "headwise study"  # for the report


@dataclass(frozen=True)
class Unit:
    """One measurement: what a claim measures under one condition with one seed."""

    claim: Claim
    condition: Any
    seed: int

    def key(self, machine: str) -> str:
        """A file name from everything that the result depends on; the `machine` only if time is measured."""
        identity = {
            "format": FORMAT,
            "claim": self.claim.name,
            "condition": asdict(self.condition),
            "seed": self.seed,
            "machine": machine if self.claim.timed else "",
        }
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.claim.name}-{digest}.json"


def request_of(out: str, quick: bool, only: Sequence[str], seeds: int, data: str | None, device: str) -> StudyRequest:
    """The request of a command line. `UserError` if its data folder or device does not exist."""
    if data and not Path(data).is_dir():
        raise UserError(f"--data {data}: no such folder")
    folder = Path(data) if data else None
    plan = Plan("quick" if quick else "full", str(choose_device(device)), folder)
    words = ["headwise", "study", *["--quick"] * quick, *(["--only", *only] if only else [])]
    words += ["--seeds", str(seeds)] if seeds else []
    words += ["--data", folder.name] if folder else []  # the report has no paths
    return StudyRequest(Path(out), only, seeds, plan, shlex.join(words))


def study(request: StudyRequest) -> list[str]:
    """`run_study`, as lines for the user: one for each claim, and the path of the report."""
    page, findings = run_study(request)
    lines = [f"{f.claim.name:<20} {f.verdict.held if f.verdict else 'not measured'}" for f in findings]
    return [*lines, "", f"Report: {page}"]


def run_study(request: StudyRequest) -> tuple[Path, list[Finding]]:
    """Measure what is missing and write the report; returns its path and findings.

    Raises:
        UserError: a claim does not exist, the number of seeds is negative, or `out` cannot be written.
    """
    claims = [_claim(name) for name in dict.fromkeys(request.only)] or list(CLAIMS.values())
    if request.seeds < 0:
        raise UserError(f"--seeds {request.seeds}: must be 1 or more")
    work = _folder(request.out / "work")
    keep_freed_memory()
    about = description(request)
    units = [unit for claim in claims for unit in units_of(claim, request)]
    measure_all(units, work, about["machine"], request.plan.scale)
    findings = [_finding(claim, request, work, about["machine"]) for claim in claims]
    return write_report(request.out, findings, about), findings


def units_of(claim: Claim, request: StudyRequest) -> list[Unit]:
    """The units of a claim, ordered by seed, so that compared conditions are measured close in time."""
    seeds = request.seeds or claim.seeds[request.plan.scale]
    conditions = claim.conditions(request.plan)
    return [Unit(claim, condition, seed) for seed in range(1, seeds + 1) for condition in conditions]


def measure_all(units: Sequence[Unit], work: Path, machine: str, scale: Scale) -> None:
    """Measure the units without a file, with a progress bar that estimates the time left."""
    from tqdm import tqdm

    waiting = [unit for unit in units if not (work / unit.key(machine)).is_file()]
    total = sum(unit.claim.cost[scale] for unit in waiting)
    look = "{l_bar}{bar}| {elapsed} done, {remaining} left"
    with tqdm(total=total, bar_format=look, disable=None, smoothing=0.1) as bar:
        for unit in waiting:
            bar.set_description(unit.claim.name)
            _write(work / unit.key(machine), measure_unit(unit))
            bar.update(unit.claim.cost[scale])


def measure_unit(unit: Unit) -> dict[str, Any]:
    """Measure one unit; its rows do not depend on earlier units, except for times."""
    started = time.perf_counter()
    with torch.random.fork_rng():
        torch.manual_seed(unit.seed)
        random.seed(unit.seed)
        rows = unit.claim.measure(unit.condition, unit.seed)
    condition = asdict(unit.condition)
    rows = [{**condition, "seed": unit.seed, **row} for row in rows]
    return {"claim": unit.claim.name, "seconds": round(time.perf_counter() - started, 3), "rows": rows}


def _finding(claim: Claim, request: StudyRequest, work: Path, machine: str) -> Finding:
    done = [_read(work / unit.key(machine)) for unit in units_of(claim, request)]
    rows: list[Row] = [row for unit in done for row in unit["rows"]]
    seconds = sum((unit["seconds"] for unit in done), start=0.0)
    if not rows:
        return Finding(claim, [], [], None, seconds)
    return Finding(claim, rows, claim.figures(rows), claim.judge(rows), seconds)


def description(request: StudyRequest) -> dict[str, Any]:
    """Hardware, versions and command, for the head of the report; `machine` is part of the key of timings."""
    cuda = request.plan.device.startswith("cuda")
    processor = torch.cuda.get_device_name(request.plan.device) if cuda else _processor()
    threads = torch.get_num_threads()
    return {
        "command": request.command,
        "scale": request.plan.scale,
        "machine": f"{processor}, {threads} thread{'s' * (threads > 1)}",
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 1),  # before the study
        "system": platform.system(),
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"python": platform.python_version(), **dict(_versions("headwise", "torch", "numpy"))},
    }


def _versions(*packages: str) -> Iterator[tuple[str, str]]:
    for package in packages:
        with suppress(metadata.PackageNotFoundError):  # a source tree that is not installed has no version
            yield package, metadata.version(package)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _claim(name: str) -> Claim:
    if name not in CLAIMS:
        raise unknown("claim", name, CLAIMS)
    return CLAIMS[name]


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path.parent}: cannot be made ({error.strerror}); name another folder") from None
    return path


def _write(path: Path, unit: dict[str, Any]) -> None:
    """Write a file that appears when it is complete."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(unit), encoding="utf-8")
    draft.replace(path)


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
