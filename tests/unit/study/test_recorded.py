"""The committed figures of the study must be what today's code measures.

If one of these tests fails, a change of code, conditions or thresholds has made results in `benchmarks/results/` out of
date. Undo the change, or measure the claims that are named again, with the command that is named, and replace the files
and the losses below.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.lab.study import distance, translation
from headwise.lab.study.claim import Plan
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.finding import Finding, rows_of_units
from headwise.lab.study.fingerprint import fingerprint_of
from headwise.lab.study.learning import train_network
from headwise.lab.study.markdown import claim_as_markdown
from headwise.lab.study.units import Unit
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks/results"
REPORTS = sorted(RESULTS.glob("study-*.json"))
QUICK = Plan("quick")
UPDATES = 4

pytestmark = pytest.mark.skipif(not REPORTS, reason="results are not part of the source distribution")
RECORDED = [
    pytest.param(path, claim, id=f"{path.stem}-{claim['name']}")
    for path in REPORTS
    for claim in json.loads(path.read_text("utf-8"))["claims"]
]


def again(path: Path, name: str) -> str:
    """What to do about an outdated claim."""
    quick = "--quick " * path.stem.startswith("study-quick")
    return (
        f"{path.name}: the figures of '{name}' are out of date. Measure them again with `headwise study {quick}"
        f"--only {name} --out runs/study`, and replace that claim in the results"
    )


def plain(value: Any) -> Any:
    """The value after a round trip through JSON."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_figures_were_measured_with_the_present_code(path: Path, claim: dict[str, Any]) -> None:
    assert claim["fingerprint"] == fingerprint_of(CLAIMS[claim["name"]]), again(path, claim["name"])


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_figures_are_of_the_present_conditions(path: Path, claim: dict[str, Any]) -> None:
    """Of real corpora only as far as the conditions are the same without them."""
    plan = Plan(json.loads(path.read_text("utf-8"))["about"]["scale"])
    conditions = CLAIMS[claim["name"]].conditions(plan)
    expected = [plain(Unit(CLAIMS[claim["name"]], condition, 1).settings) for condition in conditions]
    first = [unit["condition"] for unit in claim["units"] if unit["seed"] == 1]
    if conditions and not claim["missing"]:
        assert first == expected, again(path, claim["name"])


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_verdicts_follow_from_the_rows(path: Path, claim: dict[str, Any]) -> None:
    results = CLAIMS[claim["name"]].judge(
        rows_of_units([unit for unit in claim["units"] if unit["selected"]]) if not claim["missing"] else []
    )
    for result, recorded in zip(results, claim["statements"], strict=True):
        found = result.as_json()
        assert found["verdict"] == recorded["verdict"], again(path, claim["name"])
        assert {key: found[key] for key in ("name", "statement", "effect", "threshold")} == {
            key: recorded[key] for key in ("name", "statement", "effect", "threshold")
        }
        numbers = [(found[key], recorded[key]) for key in ("value", "low", "high") if recorded[key] is not None]
        assert all(now == pytest.approx(then, rel=1e-6, abs=1e-9) for now, then in numbers)


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_the_text_says_what_the_data_say(path: Path, claim: dict[str, Any]) -> None:
    finding = Finding.of(CLAIMS[claim["name"]], claim["units"], claim["missing"], claim["fingerprint"])
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert all(path.with_name(f"{path.stem}_{figure.name}.png").is_file() for figure in finding.figures)
    assert claim_as_markdown(finding, f"{path.stem}_") in text, again(path, claim["name"])


class Enough(Exception):
    """Raised after a few updates."""


@pytest.mark.parametrize(
    ("network", "losses"),
    [
        ("transformer", (5.6050, 5.6999, 5.4242, 5.4810)),
        ("bahdanau", (4.5028, 4.5313, 4.5345, 4.5472)),
        ("lstm", (4.5067, 4.4852, 4.5094, 4.4975)),
    ],
)
def test_recall_starts_as_when_it_was_measured(
    network: str, losses: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same initial parameters, examples and rates, for the first updates, on which processors agree."""
    condition = next(c for c in distance.conditions(QUICK) if (c.task, c.network) == ("recall", network))
    found: list[float] = []

    def begin(model: nn.Module, loss: Callable[[], Tensor], steps: int, rate: float, **options: Any) -> None:
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


@pytest.mark.parametrize(("network", "loss"), [("transformer", 6.2763), ("lstm", 5.7008)])
def test_translation_starts_as_when_it_was_measured(network: str, loss: float, tmp_path: Path) -> None:
    """The same language, tokens, batches, initial parameters and rates, with or without the compiled library."""
    condition = next(c for c in translation.conditions(QUICK) if c.network == network)
    train, valid, _ = (list(part) for part in translation.write_language(tmp_path, 20))
    settings = [*translation.run_settings(condition, 1), f"train.max_steps={UPDATES}", f"train.log_every={UPDATES}"]
    recipe = translation.RECIPES.get(network, network)
    train_model(TrainRequest(recipe, train, valid, str(tmp_path / "model"), settings, device="cpu", show=False))
    (line,) = (tmp_path / "model/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["loss"] == pytest.approx(loss, rel=1e-3)
