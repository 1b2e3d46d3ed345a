"""Training compares a model with guessing and a cheap model: on the terminal, in the card and in the settings."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killing import records
from tiny_runs import CASES, QUICK, write_inputs, write_model

from headwise.config.tasks import TASKS
from headwise.evaluate import baselines as cheap

Cli = Callable[..., Any]
SIMPLE = {  # of the cases whose task has a cheap model
    "documents": ("6-grams", ("loss", "perplexity")),
    "labels": ("TF-IDF", ("accuracy", "macro_f1")),
    "pretrained-labels": ("TF-IDF", ("accuracy", "macro_f1")),
    "tags": ("most frequent tag", ("accuracy", "f1")),
    "series": ("linear model", ("loss", "mae")),
    "pictures": ("nearest neighbours", ("accuracy", "macro_f1")),
    "pairs": ("most similar training text", ("bleu",)),
}
OTHERS = ("masked-lines", "questions", "vectors", "captions", "sounds")  # only guessing
NEEDS = {"pictures": "PIL", "captions": "PIL", "sounds": "soundfile"}


@pytest.fixture
def run(cli: Cli, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """Trains the model of a case from the command line."""

    def train(case: str, *more: str) -> tuple[Any, Path]:
        task, start, settings, name, lines, _ = CASES[case]
        file, out = write_inputs(tmp_path, name, lines), tmp_path / "out"
        recipe, _, kind = start.partition("init:")
        begin = ["--init", write_model(tmp_path / "start", kind)] if kind else ["--recipe", recipe]
        files = ["--train", file, file, "--valid", file, "--out", out, "--device", "cpu"]
        ran = cli("train", "--task", task, *begin, *files, "--set", *QUICK, *settings, *more)
        assert ran.code == 0, ran.err
        return ran, out

    return train


def saved(out: Path) -> list[dict[str, Any]]:
    file = out / "training.json" if (out / "training.json").is_file() else out / "config.json"
    return json.loads(file.read_text(encoding="utf-8"))["baselines"]


@pytest.mark.parametrize("case", SIMPLE)
def test_guessing_and_a_cheap_model_are_shown_and_kept(case: str, run: Any) -> None:
    name, metrics = SIMPLE[case]
    if name == "TF-IDF":
        pytest.importorskip("sklearn")
    ran, out = run(case)
    guess, simple = saved(out)
    assert guess["figures"] and name in simple["name"] and tuple(simple["figures"]) == metrics
    assert all(math.isfinite(figure) for figure in simple["figures"].values())
    shown = [line for line in ran.err.splitlines() if line.startswith("to compare with: ")]
    assert len(shown) == 1 and all(one["name"] in shown[0] for one in (guess, simple)), "once, at the first validation"
    [row] = [line for line in (out / "README.md").read_text().splitlines() if line.startswith("| baselines |")]
    value = f"{metrics[0]} {simple['figures'][metrics[0]]:.4f}"
    assert f"{simple['name']}: {value}" in row
    kept = ([one for one in records(out, "validation.jsonl") if one["best"]] or [None])[-1]
    if kept:
        *_, last = (line for line in ran.err.splitlines() if line.startswith("finished after"))
        assert value in last and (simple["advice"] in last) == ("better than this model" in row)


def test_every_task_is_compared_with_something() -> None:
    covered = {CASES[case][0] for case in (*SIMPLE, *OTHERS)}
    assert covered == TASKS.keys() - {"denoise", "rtd", "plm"}  # whose loss has a baseline without a cheap model, too


@pytest.mark.parametrize("case", OTHERS)
def test_tasks_without_a_cheap_model_have_guessing(case: str, run: Any) -> None:
    pytest.importorskip(NEEDS.get(case, "torch"))
    _, out = run(case)
    [guess] = saved(out)
    assert guess["name"] == "guessing" and guess["figures"]


def test_a_forecaster_worse_than_the_last_value_is_not_called_best(run: Any) -> None:
    ran, out = run("series", "train.learning_rate=9", "train.schedule=constant")
    assert "best so far" not in ran.err and "no better than guessing" in ran.err.splitlines()[-1]
    assert saved(out)[0]["name"] == "the last value"


def test_without_scikit_learn_the_line_says_what_to_install(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    ran, out = run("labels")
    assert cheap.INSTALL in saved(out)[1]["missing"] and cheap.INSTALL in ran.err
    assert cheap.INSTALL in (out / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", ["tags", "pretrained-labels"])
def test_a_resumed_run_keeps_its_figures(case: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out = run(case)
    before = saved(out)
    for name in ("usual_tags", "tfidf_labels"):
        monkeypatch.setattr(
            f"headwise.pytorch.tasks.{'tagging' if name == 'usual_tags' else 'classification'}.{name}", None
        )
    ran, out = run(case, "train.max_steps=4", "--resume")
    assert saved(out) == before and "to compare with" in ran.err
