"""The committed figures of the study must be what today's code measures.

If one of these tests fails, a change of code, conditions or thresholds has made results in `benchmarks/results/` out of
date. Undo the change, or measure the claims that are named again, with the command that is named, and replace the files
and the losses below.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.lab.study import distance, translators
from headwise.lab.study.claim import Plan
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.finding import Finding
from headwise.lab.study.learning import train_network
from headwise.lab.study.markdown import claim_as_markdown
from headwise.lab.study.units import Unit
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks/results"
REPORTS = sorted(RESULTS.glob("study-*.json"))
UPDATES = 4

pytestmark = pytest.mark.skipif(not REPORTS, reason="results are not part of the source distribution")
READ = {path: json.loads(path.read_text("utf-8")) for path in REPORTS}
RECORDED = [
    pytest.param(path, claim, id=f"{path.stem}-{claim['name']}")
    for path, report in READ.items()
    for claim in report["claims"]
    if claim["units"]
]


def again(path: Path, name: str) -> str:
    """What to do about an outdated claim."""
    return (
        f"{path.name}: the figures of '{name}' are out of date. Measure them again with `headwise study --measured "
        f"{path} --only {name} --out runs/study`, and publish them with `python benchmarks/study.py runs/study`"
    )


def finding_of(path: Path, claim: dict[str, Any]) -> Finding:
    """The claim as it was reported."""
    tuning, units = ({key: READ[path]["units"][key] for key in claim[kind]} for kind in ("tuning", "units"))
    about = (claim["waiting"], claim["at_edge"], claim["fingerprint"], claim["shared"])
    return Finding.of(CLAIMS[claim["name"]], tuning, units, *about)


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_figures_are_of_the_present_code_and_conditions(path: Path, claim: dict[str, Any], tmp_path: Path) -> None:
    """The present conditions, with the learning rates selected then, have the keys of the recorded units."""
    for name in ("multi30k/train.en.gz", "lm/tinyshakespeare.txt.gz"):  # corpora that there may have been
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    present, machine = CLAIMS[claim["name"]], READ[path]["about"]["machine"]
    conditions = present.conditions(Plan("full", data=tmp_path))
    keys, measured = set[str](), set[str]()
    for key in claim["units"]:
        unit = READ[path]["units"][key]
        rate = {"rate": unit["condition"]["rate"]} if "rate" in unit["condition"] else {}
        keys |= {Unit(present, replace(condition, **rate), unit["seed"]).key(machine) for condition in conditions}
        measured.add(without_rate(unit["condition"]))
    assert set(claim["units"]) <= keys, again(path, claim["name"])
    assert measured == {without_rate(Unit(present, one, 1).settings) for one in conditions}, again(path, claim["name"])


def without_rate(settings: dict[str, Any]) -> str:
    """A condition without its learning rate, as text."""
    return json.dumps({key: value for key, value in settings.items() if key != "rate"})


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_verdicts_follow_from_the_rows(path: Path, claim: dict[str, Any]) -> None:
    for result, recorded in zip(finding_of(path, claim).results, claim["statements"], strict=True):
        found = result.as_json()
        assert {key: found[key] for key in ("name", "statement", "effect", "threshold", "verdict", "primary")} == {
            key: recorded[key] for key in ("name", "statement", "effect", "threshold", "verdict", "primary")
        }, again(path, claim["name"])
        numbers = [(found[key], recorded[key]) for key in ("value", "low", "high") if recorded[key] is not None]
        assert all(now == pytest.approx(then, rel=1e-6, abs=1e-9) for now, then in numbers)


@pytest.mark.parametrize(("path", "claim"), RECORDED)
def test_the_text_says_what_the_data_say(path: Path, claim: dict[str, Any]) -> None:
    finding, text = finding_of(path, claim), path.with_suffix(".md").read_text(encoding="utf-8")
    if finding.is_measured:
        assert all(path.with_name(f"{path.stem}_{figure.name}.png").is_file() for figure in finding.figures)
        assert claim_as_markdown(finding, f"{path.stem}_") in text, again(path, claim["name"])
    else:
        assert f"`{claim['name']}`" in text[text.index("Not measured yet: `") :]


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
    condition = next(c for c in distance.conditions(Plan("full")) if (c.task, c.network) == ("recall", network))
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


@pytest.mark.parametrize(("network", "loss"), [("transformer", 6.2611), ("lstm", 5.7008)])
def test_translation_starts_as_when_it_was_measured(network: str, loss: float, tmp_path: Path) -> None:
    """The same language, tokens, batches, initial parameters and rates, with or without the compiled library."""
    condition = translators.on_generated(Plan("full"), network)
    train, valid, _ = (list(part) for part in translators.write_language(tmp_path, 20))
    settings = [*translators.run_settings(condition, 1), f"train.max_steps={UPDATES}", f"train.log_every={UPDATES}"]
    recipe = translators.RECIPES.get(network, network)
    train_model(TrainRequest(recipe, train, valid, str(tmp_path / "model"), settings, device="cpu", show=False))
    (line,) = (tmp_path / "model/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["loss"] == pytest.approx(loss, rel=1e-3)
