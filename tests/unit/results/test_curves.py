"""Learning curves as the logs of runs have them."""

import json
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.evaluate.pages.figures import render_figure
from headwise.lab.results.curves import learning_curves, read_points, validation_table
from headwise.lab.results.runs import group_runs


def log(shift: float = 0.0, steps: int = 3) -> list[dict[str, Any]]:
    lines = [
        {"step": 10 * n, "what": f"step {10 * n}", "loss": 5.0 - n, "bleu": 10.0 * n + shift, "elapsed": 3600.0 * n}
        for n in range(1, steps + 1)
    ]
    return [{**line, "best": True} for line in lines]


AVERAGE = {"step": 30, "what": "average of 3 checkpoints", "loss": 1.5, "bleu": 33.0, "best": True, "elapsed": 12600.0}


def test_a_line_is_the_mean_of_its_runs_where_all_of_them_are(make_run: Any) -> None:
    runs = [make_run("a-1", 1, log=log()), make_run("a-2", 2, log=[*log(2.0, 2), {"step": 99}])]
    bleu, loss = learning_curves(group_runs(runs, {}), "updates").panels
    (line,) = bleu.series
    assert (line.name, list(line.x)) == ("a", [10, 20])
    assert [(point.value, point.low, point.high) for point in line.y] == [(11, 10, 12), (21, 20, 22)]
    assert [point.value for point in loss.series[0].y] == [4, 3]
    assert (bleu.x_label, bleu.y_label) == ("updates", "validation BLEU")


def test_hours_are_those_of_the_log(make_run: Any) -> None:
    run = make_run("a", log=log())
    (line,) = learning_curves(group_runs([run], {}), "hours").panels[0].series
    assert list(line.x) == [1, 2, 3]


def test_hours_of_a_log_without_them_are_summed(make_run: Any) -> None:
    lines = [{**line, "seconds": 360} for line in log()]
    for line in lines:
        del line["elapsed"]
    run = make_run("a", log=lines)
    intervals = [{"step": step, "seconds": 1800.0} for step in (5, 10, 15, 20, 25, 30)]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in intervals), encoding="utf-8")
    assert [point.hours for point in read_points(run)] == pytest.approx([1.1, 2.1, 3.1])


def write_training(run: Any, intervals: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in intervals)
    (run.path / "metrics.jsonl").write_text(text, encoding="utf-8")


def test_the_loss_in_training_is_a_thin_line_beside_that_of_validation(make_run: Any) -> None:
    runs = [make_run("a-1", 1, log=log()), make_run("a-2", 2, log=log()), make_run("b", log=log(), d_model=32)]
    for shift, run in enumerate(runs[:2]):
        steps = [{"step": 4 * n, "loss": 9.0, "nll": 8.0 - n + shift, "elapsed": 1800.0 * n} for n in range(1, 5)]
        write_training(run, steps[: 4 - shift])
    bleu, loss = learning_curves(group_runs(runs, {}), "updates").panels
    assert [line.name for line in bleu.series] == ["a", "b"]
    assert [(line.name, line.thin) for line in loss.series] == [("a", False), ("a, training", True), ("b", False)]
    assert loss.y_label == "loss, nats per token"
    line = loss.series[1]
    assert list(line.x) == [4, 8, 12]  # as far as both runs have come
    assert [point.value for point in line.y] == [7.5, 6.5, 5.5]  # without label smoothing, as in validation
    _, loss = learning_curves(group_runs(runs, {}), "hours").panels
    assert list(loss.series[1].x) == [0.5, 1.0, 1.5]


def test_a_training_log_of_another_task_and_without_clock(make_run: Any) -> None:
    lines = [{"step": n, "what": f"step {n}", "loss": 1.0 / n, "best": True} for n in (1, 2)]
    run = make_run("a", log=lines, task="forecast")
    write_training(run, [{"step": n, "loss": 2.0 / n, "mae": 0.5, "seconds": 360} for n in (1, 2)])
    (line,) = (line for panel in learning_curves(group_runs([run], {}), "hours").panels for line in panel.series[1:])
    assert [point.value for point in line.y] == [2.0, 1.0]
    assert list(line.x) == pytest.approx([0.1, 0.2])


def test_the_average_at_the_end_is_no_point_of_the_curve_but_may_be_the_best(make_run: Any) -> None:
    run = make_run("a", log=[*log(), AVERAGE])
    assert [point.updates for point in read_points(run)] == [10, 20, 30]
    (row,) = validation_table(group_runs([run], {})).rows
    assert [cell.mean for cell in row.cells if cell] == [33.0, 1.5, 30, 3.5]


def test_a_run_without_bleu_has_no_line_there(make_run: Any) -> None:
    plain = [{key: value for key, value in line.items() if key != "bleu"} for line in log()]
    runs = [make_run("a", log=log()), make_run("b", log=plain, d_model=32)]
    bleu, loss = learning_curves(group_runs(runs, {}), "updates").panels
    assert [line.name for line in bleu.series] == ["a"]
    assert [line.name for line in loss.series] == ["a", "b"]
    assert validation_table(group_runs(runs, {})).rows[1].cells[0] is None


def test_runs_of_other_tasks_have_their_own_figures(make_run: Any) -> None:
    lines = [{"step": n, "what": f"step {n}", "loss": 1.0 / n, "accuracy": n / 3, "best": True} for n in (1, 2)]
    groups = group_runs([make_run("a", log=lines, task="mlm")], {})
    table = validation_table(groups)
    assert [column.metric for column in table.columns] == ["accuracy", "loss", "updates", "hours"]
    assert [cell.mean for cell in table.rows[0].cells if cell] == [2 / 3, 0.5, 2, 0]
    accuracy, loss = learning_curves(groups, "updates").panels
    assert (accuracy.title, accuracy.y_label, loss.y_label) == ("accuracy", "validation accuracy", "validation loss")


def test_the_updates_of_a_run_are_those_that_were_done(make_run: Any) -> None:
    """Of a run that was stopped after its last validation, or whose minutes were over, not what was planned."""
    run = make_run("a", log=log(), max_steps=14_000)
    write_training(run, [{"step": step, "loss": 5.0} for step in (5, 35)])
    (row,) = validation_table(group_runs([run], {})).rows
    assert [cell.mean for cell in row.cells if cell][-2:] == [35, 3.0]


def test_a_run_without_validation_is_refused(make_run: Any) -> None:
    with pytest.raises(UserError, match=r"has no validation\.jsonl yet"):
        learning_curves(group_runs([make_run("a")], {}), "updates")


@pytest.mark.parametrize(("style", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture(make_run: Any, style: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    figure = learning_curves(group_runs([make_run("a", log=log())], {}), "hours")
    assert render_figure(figure, style).startswith(start)
    assert render_figure(figure, style) == render_figure(figure, style)
