"""A model has the same figures in the validation of training and in `evaluate`, for every task and kind of file.

Not here: tasks whose validation has noise of its own, so that no file gives the same figures: denoising, replaced-token
detection and permutation language modelling.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killing import records
from tiny_runs import CASES, QUICK, write_inputs, write_model

from headwise.config.tasks import TASKS
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model

Cli = Callable[..., Any]


@pytest.fixture
def trained(tmp_path: Path) -> Callable[[str], tuple[Path, Path, dict[str, Any]]]:
    """Trains the model of a case; returns its folder, the file, and the figures of the kept model."""

    def train(case: str) -> tuple[Path, Path, dict[str, Any]]:
        task, start, settings, name, lines, _ = CASES[case]
        file, out = write_inputs(tmp_path, name, lines), tmp_path / "out"
        recipe, _, kind = start.partition("init:")
        init = write_model(tmp_path / "start", kind) if kind else ""
        request = TrainRequest(recipe, [str(file)] * 2, [str(file)], str(out), [*QUICK, *settings], device="cpu",
                               show=False, task=task, init=init)  # fmt: skip
        train_model(request)
        validated = records(out, "validation.jsonl")
        return out, file, ([one for one in validated if one["best"]] or validated)[-1]

    return train


@pytest.mark.parametrize("case", CASES)
def test_figures_of_training_and_of_evaluate(case: str, trained: Any, cli: Cli) -> None:
    task, *_, metrics = CASES[case]
    out, file, validated = trained(case)
    more = ["--source-language", "en"] if task == "transcribe" else []
    ran = cli("evaluate", out, "--source", file, "--format", "json", *more)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    report |= {"mae": report["model"]["mae"]} if task == "forecast" else {}
    found = {name: report.get(name, report.get(name.upper())) for name in metrics}
    scores = {name: value["score"] if isinstance(value, dict) else value for name, value in found.items()}
    assert scores == pytest.approx({name: validated[name] for name in metrics}, rel=1e-4, abs=1e-6)


def test_every_task_with_files_for_evaluate_is_compared() -> None:
    assert {task for task, *_ in CASES.values()} == TASKS.keys() - {"denoise", "rtd", "plm"}


@pytest.mark.parametrize("case", ["text", "documents"])
def test_score_reads_what_evaluate_reads(case: str, trained: Any, cli: Cli) -> None:
    out, file, validated = trained(case)
    ran = cli("score", out, "--source", file)
    assert json.loads(ran.out)["perplexity"] == pytest.approx(validated["perplexity"], rel=1e-4)


def test_a_file_of_pairs_is_scored_and_compared_as_in_training(trained: Any, cli: Cli, tmp_path: Path) -> None:
    out, file, _ = trained("columns")
    sides = [tmp_path / "a.src", tmp_path / "a.tgt"]
    rows = [row.split("\t") for row in file.read_text(encoding="utf-8").splitlines()]
    for side, lines in zip(sides, zip(*rows, strict=True), strict=True):
        side.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    one, two = (cli("score", out, "--source", *rest) for rest in ([file], [sides[0], "--target", sides[1]]))
    assert (one.out, one.err) == (two.out, two.err)
