"""The study: which units to measure, in which order, and the report of their results.

Learning rates are selected between two rounds. The first measures every condition with seed 1; then each network keeps
the learning rate with the best validation, and the second round measures the other seeds with that rate alone.
`units.py` measures and stores, `report.py` writes the report.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwise.device import choose_device
from headwise.errors import UserError, unknown
from headwise.lab.study.claim import Claim, Plan, best_rates
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.fingerprint import fingerprint_of
from headwise.lab.study.machine import describe_machine
from headwise.lab.study.report import Finding, write_report
from headwise.lab.study.units import Unit, measure_all, read_unit, seed_units, tuning_units
from headwise.runtime.allocator import keep_freed_memory
from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class StudyRequest:
    """The claims to measure, and where to write the report."""

    out: Path
    only: Sequence[str] = ()  # names of claims; none = all
    seeds: int = 0  # for every claim; 0 = each claim's own number
    plan: Plan = field(default_factory=Plan)
    jobs: int = 1  # processes
    report: bool = False  # only report what has been measured
    command: str = "headwise study"  # for the report


@dataclass(frozen=True)
class Estimated:
    """The time that a study takes, from its claims' costs."""

    units: int
    seconds: float  # of processor cores that do nothing else

    def __str__(self) -> str:
        """Hours and minutes, rounded.

        >>> str(Estimated(3, 4000.0))
        '3 measurements, about 1 h 7 min'
        """
        minutes = max(1, round(self.seconds / 60))
        shown = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
        return f"{count_of(self.units, 'measurement')}, about {shown}"


def request_of(
    out: str, quick: bool, only: Sequence[str], seeds: int, data: str | None, device: str, jobs: int, report: bool
) -> StudyRequest:
    """The request of a command line. `UserError` if its data folder or device does not exist."""
    if data and not Path(data).is_dir():
        raise UserError(f"--data {data}: no such folder")
    folder = Path(data).absolute() if data else None
    plan = Plan("quick" if quick else "full", str(choose_device(device)), folder)
    words = ["headwise", "study", *["--quick"] * quick, *(["--only", *only] if only else [])]
    words += ["--seeds", str(seeds)] if seeds else []
    words += ["--data", folder.name] if folder else []  # the report has no paths
    words += ["--jobs", str(jobs)] if jobs > 1 else []
    return StudyRequest(Path(out), only, seeds, plan, jobs, report, shlex.join(words))


def study(request: StudyRequest) -> list[str]:
    """`run_study`, as lines for the user: one for each statement, and the path of the report."""
    page, findings = run_study(request)
    lines = []
    for finding in findings:
        lines += [f"{finding.claim.name}: {finding.counted}"]
        lines += [f"  {result.verdict:<10} {result.statement.text}" for result in finding.results]
    return [*lines, "", f"Report: {page}"]


def run_study(request: StudyRequest) -> tuple[Path, list[Finding]]:
    """Measure what is missing and write the report; returns its path and findings.

    Raises:
        UserError: a claim does not exist, a number is invalid, or `out` cannot be written.
    """
    claims = [_claim(name) for name in dict.fromkeys(request.only)] or list(CLAIMS.values())
    if request.seeds < 0 or request.jobs < 1:
        raise UserError(f"--seeds {request.seeds} --jobs {request.jobs}: must be 1 or more")
    work = _folder(request.out / "work")
    keep_freed_memory()
    about = {"command": request.command, "scale": request.plan.scale, **describe_machine(request.plan.device)}
    if not request.report:
        measure_rounds(claims, request, work, about["machine"])
    findings = [_finding(claim, request, work, about["machine"]) for claim in claims]
    return write_report(request.out, findings, about), findings


def measure_rounds(claims: Sequence[Claim], request: StudyRequest, work: Path, machine: str) -> None:
    """Both rounds, with a progress bar that estimates the time left."""
    from tqdm import tqdm

    total = estimate(claims, request, work, machine)
    look = "{l_bar}{bar}| {elapsed} done, {remaining} left"
    with tqdm(total=total.seconds, bar_format=look, disable=None, smoothing=0.1) as bar:
        bar.write(f"To measure: {total} on {count_of(request.jobs, 'idle core')}", file=sys.stderr)
        for second in (False, True):
            units = [unit for claim in claims for unit in _round(claim, request, work, machine, second)]
            for unit in measure_all(units, work, machine, request.jobs):
                bar.set_description(unit.claim.name)
                bar.update(unit_seconds(unit.claim, request.plan.scale, request.jobs))


def unit_seconds(claim: Claim, scale: Any, jobs: int) -> float:
    """Seconds that a unit adds to the study."""
    return claim.cost[scale] / (1 if claim.timed else jobs)


def estimate(claims: Sequence[Claim], request: StudyRequest, work: Path, machine: str) -> Estimated:
    """Units still to be measured, and their time. Which rates are selected does not change their number."""
    count, seconds = 0, 0.0
    for claim in claims:
        stored = [(work / unit.key(machine)).is_file() for unit in tuning_units(claim, request.plan)]
        missing = stored.count(False)
        later = _selected(claim, request, work, machine) if not missing else _groups(claim, request.plan)
        units = seed_units(claim, later, _seeds(claim, request))
        missing += len([unit for unit in units if not (work / unit.key(machine)).is_file()])
        count, seconds = count + missing, seconds + missing * unit_seconds(claim, request.plan.scale, request.jobs)
    return Estimated(count, seconds)


def _seeds(claim: Claim, request: StudyRequest) -> int:
    return request.seeds or claim.seeds[request.plan.scale]


def _groups(claim: Claim, plan: Plan) -> list[Any]:
    """One condition of each network, whichever its learning rate."""
    conditions = list(claim.conditions(plan))
    return best_rates(conditions, lambda condition: 0.0) if claim.tuned else conditions


def _selected(claim: Claim, request: StudyRequest, work: Path, machine: str) -> list[Any]:
    """The conditions whose learning rate was selected in the first round, as far as that was measured."""
    done = [unit for unit in tuning_units(claim, request.plan) if (work / unit.key(machine)).is_file()]
    if not claim.tuned:
        return [unit.condition for unit in done]
    validation = {repr(unit.condition): _validation(work / unit.key(machine)) for unit in done}
    return best_rates([unit.condition for unit in done], lambda condition: validation[repr(condition)])


def _validation(path: Path) -> float:
    rows = read_unit(path)["rows"]
    return rows[0]["validation"] if rows else float("-inf")


def _round(claim: Claim, request: StudyRequest, work: Path, machine: str, second: bool) -> list[Unit]:
    if not second:
        return tuning_units(claim, request.plan)
    return seed_units(claim, _selected(claim, request, work, machine), _seeds(claim, request))


def _finding(claim: Claim, request: StudyRequest, work: Path, machine: str) -> Finding:
    """The results so far: of every unit that has been measured, and statements from those with the selected rates."""
    chosen = _selected(claim, request, work, machine)
    units = tuning_units(claim, request.plan) + seed_units(claim, chosen, _seeds(claim, request))
    stored = [(unit, read_unit(work / unit.key(machine))) for unit in units if (work / unit.key(machine)).is_file()]
    kept = {repr(condition) for condition in chosen}
    measured = [{**found, "selected": repr(unit.condition) in kept} for unit, found in stored]
    return Finding.of(claim, measured, len(units) - len(stored), fingerprint_of(claim))


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
