"""The study: which units to measure, in which order, and the report of their results.

Claims come in the order of `claims.py`, the most important first. For each of them learning rates are selected
(`tuning.py`); then every network is measured with a few seeds. When all claims have these, another seed is measured as
long as a statement is undecided. What comes next follows from the units in the store alone, so a study that was killed
continues, and the report can be written at any time.
"""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from headwise.device import choose_device
from headwise.errors import UserError, unknown
from headwise.lab.study.claim import Claim, Plan
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.finding import Finding, kind_of, rows_of_units
from headwise.lab.study.fingerprint import fingerprint_of
from headwise.lab.study.machine import describe_machine
from headwise.lab.study.report import write_report
from headwise.lab.study.tuning import BUDGETS, EXTENSIONS, tune
from headwise.lab.study.units import Store, Unit, measure_all
from headwise.runtime.allocator import keep_freed_memory
from headwise.text.files.sources import count_of


@dataclass(frozen=True)
class StudyRequest:
    """The claims to measure, and where to write the report."""

    out: Path
    only: Sequence[str] = ()  # names of claims; none = all
    plan: Plan = field(default_factory=Plan)
    jobs: int = 1  # processes
    report: bool = False  # only report what has been measured
    earlier: str = ""  # report whose measurements need no repetition
    command: str = "headwise study"  # for the report


@dataclass(frozen=True)
class State:
    """How far a claim is."""

    tuning: list[Unit]  # measured or not
    units: list[Unit]  # measured, of every seed that all networks have
    waiting: list[Unit]  # to be measured next; none: the claim is finished
    at_edge: list[str]  # networks whose best learning rate is at the edge of the range


def request_of(
    out: str, quick: bool, only: Sequence[str], data: str | None, device: str, jobs: int, report: bool, earlier: str
) -> StudyRequest:
    """The request of a command line. `UserError` if its data folder or device does not exist."""
    if data and not Path(data).is_dir():
        raise UserError(f"--data {data}: no such folder")
    folder = Path(data).absolute() if data else None
    plan = Plan("quick" if quick else "full", str(choose_device(device)), folder)
    words = ["headwise", "study", *["--quick"] * quick, *(["--only", *only] if only else [])]
    words += ["--data", folder.name] if folder else []  # the report has no paths
    words += ["--jobs", str(jobs)] if jobs > 1 else []
    return StudyRequest(Path(out), only, plan, jobs, report, earlier, shlex.join(words))


def study(request: StudyRequest) -> list[str]:
    """`run_study`, as lines for the user: one for each statement, and the path of the report."""
    page, findings = run_study(request)
    if request.plan.scale == "quick":
        return [*(f"{finding.claim.name}: runs" for finding in findings), "", f"Figures: {page}"]
    lines = []
    for finding in findings:
        shown = finding.results if finding.is_measured else []
        lines += [f"{finding.claim.name}: {finding.counted}", *(f"  {result.sentence}" for result in shown)]
    return [*lines, "", f"Report: {page}"]


def run_study(request: StudyRequest) -> tuple[Path, list[Finding]]:
    """Measure what is missing and write the report; returns its path and findings.

    Raises:
        UserError: a claim does not exist, a number is invalid, or a file cannot be read or written.
    """
    claims = [_claim(name) for name in CLAIMS if not request.only or name in request.only]
    claims += [_claim(name) for name in request.only if name not in CLAIMS]
    if request.jobs < 1:
        raise UserError(f"--jobs {request.jobs}: must be 1 or more")
    earlier = _earlier(request.earlier) if request.earlier else {}
    about = {"command": request.command, "scale": request.plan.scale, **describe_machine(request.plan.device)}
    work = Store(_folder(request.out / "work"), about["machine"])
    work.add(earlier)
    keep_freed_memory()
    failed = {} if request.report else measure_claims(claims, request, work)
    states = {claim.name: state_of(claim, request.plan, work) for claim in CLAIMS.values()}
    findings = [_finding(claim, states, work) for claim in claims]
    page = write_report(request.out, findings, about)
    for error in failed.values():
        raise error
    return page, findings


def measure_claims(claims: Sequence[Claim], request: StudyRequest, work: Store) -> dict[str, Exception]:
    """One claim after the other, with its plan before and a progress bar; more seeds only when all have the first.

    A claim whose measurement raises an error is left; the others go on. Returns the errors by claim.
    """
    from tqdm import tqdm

    failed: dict[str, Exception] = {}
    lines, total = plan_lines(claims, request, work)
    look = "{l_bar}{bar}| {elapsed} done, {remaining} left"
    with tqdm(total=total, bar_format=look, disable=None, smoothing=0.1) as bar:
        for line in lines:
            bar.write(line, file=sys.stderr)
        for more, claim in product((False, True), claims):
            looks = claim.looks_at(request.plan)
            last = looks.most if more else looks.first
            bar.set_description(claim.name)
            while claim.name not in failed and (
                waiting := [one for one in state_of(claim, request.plan, work).waiting if one.seed <= last]
            ):
                try:
                    for unit in measure_all(waiting, work, request.jobs):
                        bar.update(expected_seconds(unit, request.plan, work) / (1 if claim.timed else request.jobs))
                except (UserError, OSError):  # of the files or the machine, so of all claims
                    raise
                except Exception as error:
                    bar.write(f"{claim.name}: {type(error).__name__}: {error}; the other claims go on", file=sys.stderr)
                    failed[claim.name] = error
    return failed


def plan_lines(claims: Sequence[Claim], request: StudyRequest, work: Store) -> tuple[list[str], float]:
    """What will be measured, a line for each claim, and the seconds of all.

    Undecided statements may need more seeds than the plan counts, and extended learning rates more runs.
    """
    lines, total, counted = [], 0.0, set[str]()
    for claim in claims:
        units = {unit.key(work.machine): unit for unit in planned(claim, request.plan, work)}
        new = [unit for key, unit in units.items() if key not in counted]
        counted |= units.keys()
        seconds = sum(expected_seconds(unit, request.plan, work) for unit in new)
        seconds /= 1 if claim.timed else request.jobs
        shown = f", about {shown_time(seconds)}" * bool(new)
        shared = f", {len(units) - len(new)} more are shared with claims above" * (len(new) < len(units))
        lines.append(f"{claim.name:<20}{len(new):>4} measurements{shown}{shared}")
        total += seconds
    lines.append(f"To measure: about {shown_time(total)} on {count_of(request.jobs, 'idle core')}")
    return lines, total


def planned(claim: Claim, plan: Plan, work: Store) -> list[Unit]:
    """The units that are missing up to the first look, with the learning rates that are known by now."""
    state, first = state_of(claim, plan, work), claim.looks_at(plan).first
    if state.units or not state.tuning or all(work.read(unit) for unit in state.tuning):
        return state.waiting
    later = [Unit(claim, condition, seed) for condition in claim.conditions(plan) for seed in range(1, first + 1)]
    return [*state.waiting, *later]


def expected_seconds(unit: Unit, plan: Plan, work: Store) -> float:
    """The time of a unit: that of a measured one of the same network and size, else the claim's guess."""
    if plan.scale == "quick":
        return 1.0
    steps = getattr(unit.condition, "steps", 0)
    full = next((c for c in unit.claim.conditions(plan) if _same(c, unit.condition)), unit.condition)
    tuning = tune(full, lambda condition: None, 0)
    for other in [*tuning.tried, unit.condition]:
        if found := work.read(Unit(unit.claim, other, 1)):
            return found["seconds"] * (steps / other.steps if steps else 1)
    return unit.claim.cost * (steps / full.steps if steps else 1)


def _same(one: Any, other: Any) -> bool:
    """Whether two conditions differ in their learning rate and budget alone; an untrained network has neither."""
    return all(
        bool(value) == bool(getattr(other, name)) if name in ("rate", *BUDGETS) else value == getattr(other, name)
        for name, value in vars(one).items()
    )


def shown_time(seconds: float) -> str:
    """Hours and minutes, rounded.

    >>> shown_time(4000.0)
    '1 h 7 min'
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def state_of(claim: Claim, plan: Plan, work: Store) -> State:
    """How far a claim is, and what to measure next."""

    def validation(condition: Any) -> float | None:
        found = work.read(Unit(claim, condition, 1))
        return float(found["rows"][0]["validation"]) if found else None

    looks, conditions = claim.looks_at(plan), claim.conditions(plan)
    tunings = [tune(condition, validation, plan.pick(0, EXTENSIONS)) for condition in conditions]
    tuning = [Unit(claim, condition, 1) for one in tunings for condition in one.tried]
    at_edge = [kind_of(vars(one.chosen)) for one in tunings if one.at_edge]
    waiting = [Unit(claim, condition, 1) for one in tunings for condition in one.waiting]
    counted: list[Unit] = []
    for seed in range(1, looks.most + 1 if conditions and not waiting else 1):
        if seed > looks.first and _is_decided(claim, counted, work):
            break
        seeds = range(seed, max(seed, looks.first) + 1)  # up to the first look, all at once
        waiting = [unit for unit in _units(claim, tunings, seeds) if work.read(unit) is None]
        if any(unit.seed == seed for unit in waiting):
            break
        waiting = []
        counted += _units(claim, tunings, range(seed, seed + 1))
    return State(tuning, counted, waiting, list(dict.fromkeys(at_edge)))


def _units(claim: Claim, tunings: Sequence[Any], seeds: range) -> list[Unit]:
    """Ordered by seed, so that compared networks are measured close in time."""
    return [Unit(claim, one.chosen, seed) for seed in seeds for one in tunings]


def _is_decided(claim: Claim, units: Sequence[Unit], work: Store) -> bool:
    results = claim.judge(claim.view(rows_of_units(list(_read(units, work).values()))))
    return all(result.verdict != "undecided" for result in results)


def _read(units: Sequence[Unit], work: Store) -> dict[str, dict[str, Any]]:
    return {unit.key(work.machine): found for unit in units if (found := work.read(unit))}


def _finding(claim: Claim, states: dict[str, State], work: Store) -> Finding:
    """The results so far, and the claims that use the same units."""
    state = states[claim.name]
    tuning, units = _read(state.tuning, work), _read(state.units, work)
    shared = Counter(
        {name: len(units.keys() & _read(other.units, work).keys()) for name, other in states.items()}
    ) - Counter({claim.name: len(units)})
    return Finding.of(claim, tuning, units, len(state.waiting), state.at_edge, fingerprint_of(claim), shared)


def _earlier(path: str) -> dict[str, dict[str, Any]]:
    """The measurements of a `study.json`."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))["units"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"--measured {path}: not a study.json of this command ({error})") from None


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
