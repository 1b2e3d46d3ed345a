"""Learning curves from the logs of runs (validation scores and training loss by updates or hours), and the best
validation scores as a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any

from headwise.config.tasks import TASKS
from headwise.errors import UserError
from headwise.evaluate.logs import TRAINING_LOG, VALIDATION_LOG, read_log
from headwise.evaluate.pages.figures import Figure, Panel, Series
from headwise.evaluate.pages.statistics import Estimate
from headwise.lab.results.runs import Group, Run
from headwise.lab.results.table import Cell, ResultsColumn, ResultsTable, Row

NAMES = {"bleu": "BLEU", "macro_f1": "macro F1", "f1": "F1", "exact_match": "exact match", "mrr": "MRR", "wer": "WER"}
AXES = {"updates": "updates", "hours": "hours of training, including validation"}


@dataclass(frozen=True)
class Point:
    """Figures of one validation, or of one interval of training."""

    updates: int
    hours: float
    figures: Mapping[str, float]


def learning_curves(groups: Sequence[Group], axis: str) -> Figure:
    """A panel for each metric, with a line for each system and a band from the worst to the best of its runs.

    The panel of the loss also has the training loss, as a thin line for each system.

    Raises:
        UserError: a run has not been validated yet.
    """
    points = {group.name: [read_points(run) for run in group.runs] for group in groups}
    training = {group.name: [read_training(run) for run in group.runs] for group in groups}
    panels = []
    for key in _measured(groups):
        lines = []
        for name, runs in points.items():
            lines.append(_line(name, runs, key, axis))
            if key == "loss":
                lines.append(replace(_line(f"{name}, training", training[name], key, axis), thin=True))
        if shown := [line for line in lines if line.x]:
            label = _label(key, groups, any(line.thin for line in shown))
            panels.append(Panel(NAMES.get(key, key), AXES[axis], label, shown, log_x=False))
    return Figure("learning-curves", "", "", panels)


def read_points(run: Run) -> list[Point]:
    """The validations of a run in order, without that of the averaged checkpoints at the end."""
    records = [record for record in _validations(run) if str(record.get("what", "")).startswith("step ")]
    return [Point(record["step"], _hours(run, record), _figures(record)) for record in records]


def read_training(run: Run) -> list[Point]:
    """The loss of each training interval: the negative log-likelihood if it was logged, as in validation, otherwise the
    training objective. Hours include the validations in between, as in the log.
    """
    points, hours = [], 0.0
    for record in read_log(run.path / TRAINING_LOG):
        hours = record["elapsed"] / 3600 if "elapsed" in record else hours + record.get("seconds", 0.0) / 3600
        if "loss" in record:
            points.append(Point(record["step"], hours, {"loss": float(record.get("nll", record["loss"]))}))
    return points


def validation_table(groups: Sequence[Group]) -> ResultsTable:
    """The best validation scores of each system, and the updates and hours of training."""
    keys = _measured(groups)
    best = [ResultsColumn("validation", NAMES.get(key, key), digits=2 if key == "bleu" else 4) for key in keys]
    columns = [*best, ResultsColumn("", "updates", digits=0), ResultsColumn("", "hours")]
    return ResultsTable(columns, [Row(group.name, len(group.runs), _best_cells(group, keys)) for group in groups])


def _measured(groups: Sequence[Group]) -> list[str]:
    """The metrics of the runs' tasks, the loss last."""
    tasks = dict.fromkeys(run.config.model.task for group in groups for run in group.runs)
    return [*dict.fromkeys(chain.from_iterable(TASKS[task].metrics for task in tasks)), "loss"]


def _label(key: str, groups: Sequence[Group], with_training: bool) -> str:
    """The label of an axis; the loss of translators has a known unit."""
    translators = all(run.config.model.task == "translate" for group in groups for run in group.runs)
    unit = ", nats per token" if key == "loss" and translators else ""
    return f"{'' if with_training else 'validation '}{NAMES.get(key, key)}{unit}"


def _best_cells(group: Group, keys: Sequence[str]) -> list[Cell | None]:
    validations = [_validations(run) for run in group.runs]
    best = [([record for record in own if record.get("best")] or own)[-1] for own in validations]
    last = [own[-1] for own in validations]
    columns: list[list[float]] = [
        *([_figures(record)[key] for record in best if key in _figures(record)] for key in keys),
        [float(max(record["step"], _last_step(run))) for run, record in zip(group.runs, last, strict=True)],
        [_hours(run, record) for run, record in zip(group.runs, last, strict=True)],
    ]
    return [Cell(scores) if len(scores) == len(group.runs) else None for scores in columns]


def _last_step(run: Run) -> int:
    """The last logged update, which may be after the last validation of a run that was stopped."""
    return max((record["step"] for record in read_log(run.path / TRAINING_LOG)), default=0)


def _validations(run: Run) -> list[dict[str, Any]]:
    records = read_log(run.path / VALIDATION_LOG)
    if not records:
        raise UserError(f"{run.path}: has no {VALIDATION_LOG} yet; leave it out, or wait for its first validation")
    return records


def _figures(record: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in record.items() if isinstance(value, int | float)}


def _hours(run: Run, record: Mapping[str, Any]) -> float:
    """When a validation ended; older logs have only the durations of training intervals."""
    if "elapsed" in record:
        return record["elapsed"] / 3600
    before = [line for line in read_log(run.path / TRAINING_LOG) if line["step"] <= record["step"]]
    return (sum(line.get("seconds", 0.0) for line in before) + record.get("seconds", 0.0)) / 3600


def _line(name: str, runs: Sequence[Sequence[Point]], key: str, axis: str) -> Series:
    """The mean of the runs at steps where all were validated."""
    by_step = [{point.updates: point for point in points if key in point.figures} for points in runs]
    steps = sorted(set.intersection(*(set(points) for points in by_step)))
    at = [[points[step] for points in by_step] for step in steps]
    x = [fmean(getattr(point, axis) for point in points) for points in at]
    return Series(name, x, [_estimate([point.figures[key] for point in points]) for points in at])


def _estimate(values: Sequence[float]) -> Estimate:
    return Estimate(fmean(values), min(values), max(values), len(values))
