"""The committed report of the small study must be what `headwise study --quick` measures.

Where one of these tests fails the report is out of date. Undo what changed, or measure again and replace both files and
the losses below: `headwise study --quick --out runs/study`, whose `study.json` and verdicts are the report.
"""

import json
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.study import distance, translation
from headwise.study.claim import Plan
from headwise.study.claims import CLAIMS
from headwise.study.learning import train_network
from headwise.study.run import StudyRequest, units_of
from headwise.tasks.run import TrainRequest
from headwise.tasks.train import train_model

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks/results"
REPORTS = sorted(RESULTS.glob("study-quick_*.json"), key=lambda path: path.stem[-10:])  # by date
QUICK = Plan("quick")
UPDATES = 4

pytestmark = pytest.mark.skipif(not REPORTS, reason="results are not part of the source distribution")
RECORDED = {claim["name"]: claim for claim in json.loads(REPORTS[-1].read_text("utf-8"))["claims"]} if REPORTS else {}


def plain(conditions: Any) -> Any:
    """The value after a round trip through JSON."""
    return json.loads(json.dumps(conditions))


def test_trained_claims_are_in_the_report() -> None:
    assert {"distance", "translation"} <= set(RECORDED)


@pytest.mark.parametrize("name", RECORDED)
def test_conditions_and_seeds_are_those_of_the_report(name: str) -> None:
    units = units_of(CLAIMS[name], StudyRequest(Path(), plan=QUICK))
    fields = [name for name in asdict(units[0].condition) if name != "sentences"]  # a row has its own number
    expected = [
        plain({field: getattr(unit.condition, field) for field in fields} | {"seed": unit.seed}) for unit in units
    ]
    measured = [{field: row[field] for field in (*fields, "seed")} for row in RECORDED[name]["rows"]]
    assert [one for i, one in enumerate(measured) if one not in measured[:i]] == expected


@pytest.mark.parametrize("name", RECORDED)
def test_verdicts_follow_from_the_rows(name: str) -> None:
    verdict = CLAIMS[name].judge(RECORDED[name]["rows"])
    assert asdict(verdict) == RECORDED[name]["verdict"]
    said = " ".join(REPORTS[-1].with_suffix(".md").read_text(encoding="utf-8").split())
    assert f"## {name}: {verdict.held}" in said
    assert verdict.reason.lower() in said.lower()


class Enough(Exception):
    """Raised after a few updates."""


@pytest.mark.parametrize(
    ("network", "losses"),
    [
        ("transformer", (5.5951, 5.6570, 5.4797, 5.4200)),
        ("bahdanau", (4.6245, 4.5110, 4.4779, 4.5171)),
        ("lstm", (4.5007, 4.4910, 4.5153, 4.5071)),
    ],
)
def test_recall_starts_as_in_the_report(
    network: str, losses: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same initial parameters, examples and rates, for the first updates, on which processors agree."""
    condition = next(c for c in distance.conditions(QUICK) if (c.task, c.network) == ("recall", network))
    found: list[float] = []

    def begin(model: nn.Module, loss: Callable[[], Tensor], steps: int, rate: float) -> None:
        def each(step: int, value: float, norm: float) -> None:
            found.append(value)
            if step == UPDATES:
                raise Enough

        train_network(model, loss, steps, rate, each=each)

    monkeypatch.setattr(distance, "train_network", begin)
    with torch.random.fork_rng(), pytest.raises(Enough):
        torch.manual_seed(1)
        random.seed(1)
        distance.measure(condition, 1)
    assert found == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize(("network", "loss"), [("transformer", 6.2224), ("lstm", 5.6985)])
def test_translation_starts_as_in_the_report(network: str, loss: float, tmp_path: Path) -> None:
    """The same language, tokens, batches, initial parameters and rates, with or without the compiled library."""
    condition = next(c for c in translation.conditions(QUICK) if c.network == network)
    train, valid, _ = (list(part) for part in translation.write_language(tmp_path, 20))
    settings = [*translation.run_settings(condition, 1), f"train.max_steps={UPDATES}", f"train.log_every={UPDATES}"]
    recipe = translation.RECIPES.get(network, network)
    train_model(TrainRequest(recipe, train, valid, str(tmp_path / "model"), settings, device="cpu", show=False))
    (line,) = (tmp_path / "model/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["loss"] == pytest.approx(loss, rel=1e-3)
