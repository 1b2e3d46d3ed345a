"""`train.minutes`: the number of updates follows from the time that they take. All clocks are counted here."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.training.test_trainer import TRAIN, Run

from headwise.config.training import TrainConfig
from headwise.core.optimizer import learning_rate
from headwise.core.train import Progress
from headwise.errors import UserError
from headwise.pytorch.tasks.run import TrainRequest, _final_message, run_config
from headwise.pytorch.training import trainer
from headwise.pytorch.training.minutes import TimePlan, planned_steps
from headwise.pytorch.training.parallel import ParallelTrainer

LINEAR = replace(TRAIN, schedule="linear", warmup_steps=500, validate_every=2000, max_steps=10, minutes=10.0)


def simulated(
    train: TrainConfig, cost: Callable[[float], float], validation: float = 0.0, step: int = 0, elapsed: float = 0.0
) -> tuple[float, int, TrainConfig]:
    """Train on paper, with `cost(elapsed)` seconds for an update; returns seconds, updates and the last settings."""
    plan = TimePlan(train, step, elapsed)
    now = plan.before()
    while step < now.max_steps:
        step, elapsed = step + 1, elapsed + cost(elapsed)
        now = plan.after(now, step, elapsed)
        if step % now.validate_every == 0 or step == now.max_steps:
            plan.validated(validation)
            elapsed += validation
    return elapsed, step, now


@pytest.mark.parametrize("minutes", [0.5, 10.0])
@pytest.mark.parametrize("validation", [0.0, 1.5])
@pytest.mark.parametrize(
    "cost",
    [
        lambda elapsed: 0.1,
        lambda elapsed: 0.2 if elapsed > 200 else 0.1,  # another program starts
        lambda elapsed: 0.1 if elapsed > 200 else 0.2,
        lambda elapsed: 1.0 if elapsed < 5 else 0.1,  # slow at first
        lambda elapsed: 0.3 if int(elapsed) % 7 < 2 else 0.1,
    ],
)
def test_a_run_takes_its_minutes(minutes: float, validation: float, cost: Callable[[float], float]) -> None:
    train = replace(LINEAR, minutes=minutes)
    elapsed, step, now = simulated(train, cost, validation)
    assert elapsed == pytest.approx(60 * minutes, rel=0.05)
    assert learning_rate(step, 1.0, now) == 0


def test_a_resumed_run_takes_what_is_left() -> None:
    elapsed, step, _ = simulated(LINEAR, lambda elapsed: 0.1, step=3000, elapsed=300.0)
    assert elapsed == pytest.approx(600, rel=0.05)
    assert step == pytest.approx(6000, rel=0.05)


def test_a_run_whose_minutes_are_over_trains_no_more() -> None:
    assert simulated(LINEAR, lambda elapsed: 0.1, step=3000, elapsed=600.0)[:2] == (600.0, 3000)


def test_intervals_are_shortened_for_a_short_run_only() -> None:
    _, step, now = simulated(replace(LINEAR, log_every=100), lambda elapsed: 1.0)
    assert step == pytest.approx(600, rel=0.05)
    assert (now.warmup_steps, now.validate_every) == (pytest.approx(150, rel=0.05), pytest.approx(200, rel=0.05))
    assert now.checkpoint_every <= 120
    assert now.log_every <= 30
    _, step, now = simulated(LINEAR, lambda elapsed: 0.05)
    assert step > 10_000
    assert (now.warmup_steps, now.validate_every) == (500, 2000)


def test_time_for_the_average_of_checkpoints_is_kept() -> None:
    paper = TrainConfig(validate_every=1000, average=5)
    one, two = (planned_steps(replace(paper, average=average), 0, 100.0, 1.0, 10.0) for average in (1, 5))
    assert (one, two) == (90, 80)


class Ticks:
    """A clock that only moves when an update or a validation is computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: self.now))

    def run(self, folder: Path, **train: Any) -> Run:
        def validate() -> dict[str, float]:
            self.now += 6.0
            return {"loss": 1.0}

        run = Run(folder, validate=validate, **train)
        compute = run.trainer._objective

        end = self.now + 600.0

        def objective(batch: Any) -> Any:
            self.now += 2.0
            assert self.now < end, "the run does not end"
            return compute(batch)

        run.trainer._objective = objective
        return run


TIMED: dict[str, Any] = {"schedule": "linear", "log_every": 100, "validate_every": 1000, "checkpoint_every": 1000}


def test_the_trainer_keeps_to_the_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticks(monkeypatch)
    run = clock.run(tmp_path, minutes=1.0, **TIMED)  # max_steps is 4 there
    assert run.trainer.run(started=990.0) == "finished"  # ten seconds of reading
    assert clock.now - 990 == pytest.approx(60, rel=0.05)
    last = run.log()[-1]
    assert last["learning_rate"] < 0.002
    assert run.log("validation.jsonl")[-1]["step"] == run.trainer.progress.step
    assert len(run.validated) >= 3
    assert last["seconds_left"] < 10
    assert run.trainer.config.train.max_steps == 4  # as it was set; the plan is that of the loop


@pytest.mark.parametrize(
    ("reason", "minutes", "because"),
    [
        ("finished", 0.0, "all steps are done"),
        ("finished", 1.0, "the time of 1 minute is over"),
        ("finished", 1.5, "the time of 1.5 minutes is over"),
        ("patience", 1.0, "the validation stopped improving"),
    ],
)
def test_the_last_line_says_why_the_run_ended(reason: str, minutes: float, because: str) -> None:
    for best in (None, 1.0):
        assert f"finished after step 7 ({because})" in _final_message(
            reason, Progress(step=7, best=best), Path("out"), minutes
        )


def test_the_plan_has_singular_and_plural() -> None:
    plan = TimePlan(replace(LINEAR, minutes=1.0), 0, 0.0, update=0.5)
    assert plan.described(replace(LINEAR, max_steps=120)) == "120 updates fit into 1 minute, at 0.5 seconds each"


def test_a_stopped_run_is_resumed_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticks(monkeypatch)
    clock.run(tmp_path, minutes=1.0, **TIMED).trainer.run()
    spent = clock.now - 1000
    clock.now += 10_000  # nobody trains for a while
    again = clock.now
    resumed = clock.run(tmp_path, minutes=2.0, **TIMED)
    assert resumed.trainer.restore(pytest.fail)
    assert resumed.trainer.run(started=clock.now) == "finished"
    assert spent + clock.now - again == pytest.approx(120, rel=0.05)


def test_without_minutes_nothing_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticks(monkeypatch)
    run = clock.run(tmp_path, max_steps=7, **TIMED)
    run.trainer.run(started=0.0)
    assert run.trainer.progress.step == 7
    assert run.trainer.progress.elapsed < 60


def test_all_processes_plan_by_the_clock_of_rank_0() -> None:
    sums = {True: [], False: []}
    for is_main in sums:
        ranks = SimpleNamespace(is_main=is_main, all_reduce=lambda own, what, at=sums[is_main]: at.extend(own) or [7.0])
        assert ParallelTrainer._shared_elapsed(SimpleNamespace(ranks=ranks, _elapsed=lambda: 7.0)) == 7.0  # type: ignore[arg-type]
    assert sums == {True: [7.0], False: [0.0]}


@pytest.mark.parametrize("setting", ["train.max_steps=5", "data.both_directions=0.5"])
def test_settings_that_count_all_updates_are_refused(setting: str) -> None:
    request = TrainRequest("tiny", ["a.tsv"], ["1%"], "out", ["train.minutes=5", setting])
    with pytest.raises(UserError, match=setting.partition("=")[0]):
        run_config(request)
