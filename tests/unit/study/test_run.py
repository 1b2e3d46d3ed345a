"""The study can be resumed, selects learning rates, measures what changed again, and writes a self-contained report."""

import html
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headwise import cli
from headwise.errors import UserError
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study import claims
from headwise.lab.study.claim import Claim, Plan, mean_of, series
from headwise.lab.study.finding import networks_trained
from headwise.lab.study.run import StudyRequest, estimate, request_of, run_study, study
from headwise.lab.study.statement import Row, Statement, over_seeds
from headwise.lab.study.units import Unit, tuning_units


@dataclass(frozen=True)
class Condition:
    x: int
    noise: float


MEASURED: list[tuple[int, int]] = []  # (x, seed) of every unit done


def measure(condition: Condition, seed: int) -> list[Row]:
    MEASURED.append((condition.x, seed))
    return [{"y": condition.x**2 + condition.noise * seed, "network": "lstm", "parameters": 10}]


def figures(rows: Sequence[Row]) -> list[Figure]:
    return [
        Figure(
            "toy",
            "A <toy> & more.",
            'Says "nothing".',
            [Panel("t", "x (m)", "y (m²)", [series(rows, "lstm", "x", "y")])],
        )
    ]


MEAN = Statement(
    "mean", "The mean is large.", "mean <of> y (m²)", over_seeds(lambda rows: mean_of(rows, "y")), above=5.0
)
TOY = Claim(
    name="toy",
    sentence="Squares grow.",
    source="arithmetic",
    method="Squaring.",
    conditions=lambda plan: [Condition(x, 0.1) for x in (1, 2, 4)],
    measure=measure,
    figures=figures,
    statements=(MEAN,),
    seeds={"toy": 2, "quick": 2, "full": 3},
    cost={"toy": 1.0, "quick": 1.0, "full": 1.0},
)


@dataclass(frozen=True)
class Tuned:
    network: str
    rate: float


def measure_tuned(condition: Tuned, seed: int) -> list[Row]:
    TUNED.append((condition.network, condition.rate, seed))
    validation = -abs(condition.rate - (1.0 if condition.network == "lstm" else 3.0))
    y = 100 * condition.rate + seed
    return [{"x": 1, "y": y, "validation": validation, "diverged": 2, "parameters": 10}]


TUNED: list[tuple[str, float, int]] = []
TUNABLE = replace(
    TOY,
    name="tunable",
    conditions=lambda plan: [Tuned(name, rate) for name in ("lstm", "conv") for rate in (0.5, 1.0, 3.0)],
    measure=measure_tuned,
    tuned=True,
)
UNMEASURABLE = replace(TOY, name="without-data", conditions=lambda plan: [], needs="give it data.")


@pytest.fixture(autouse=True)
def toy_claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    MEASURED.clear()
    TUNED.clear()
    for claim in (TOY, TUNABLE, UNMEASURABLE):
        monkeypatch.setitem(claims.CLAIMS, claim.name, claim)
    yield


def request(out: Path, only: tuple[str, ...] = ("toy",), seeds: int = 0) -> StudyRequest:
    return StudyRequest(out, only, seeds, Plan("toy"))


def test_a_rerun_measures_only_what_is_missing(tmp_path: Path) -> None:
    run_study(request(tmp_path))
    assert MEASURED == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]  # seeds outermost
    run_study(request(tmp_path))
    assert len(MEASURED) == 6
    run_study(request(tmp_path, seeds=3))
    assert MEASURED[6:] == [(1, 3), (2, 3), (4, 3)]


def test_changed_conditions_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_study(request(tmp_path))
    changed = replace(TOY, conditions=lambda plan: [Condition(1, 0.1), Condition(2, 0.2)])
    monkeypatch.setitem(claims.CLAIMS, "toy", changed)
    run_study(request(tmp_path))
    assert MEASURED[6:] == [(2, 1), (2, 2)]


def test_only_timings_depend_on_the_machine() -> None:
    unit = Unit(TOY, Condition(1, 0.1), 1)
    assert unit.key("one") == unit.key("another")
    timed = replace(unit, claim=replace(TOY, timed=True))
    assert timed.key("one") != timed.key("another")


def test_an_interrupt_loses_only_the_running_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(condition: Condition, seed: int) -> list[Row]:
        if (condition.x, seed) == (4, 1):
            raise KeyboardInterrupt
        return measure(condition, seed)

    monkeypatch.setitem(claims.CLAIMS, "toy", replace(TOY, measure=interrupted))
    with pytest.raises(KeyboardInterrupt):
        run_study(request(tmp_path))
    assert len(list((tmp_path / "work").iterdir())) == 2
    monkeypatch.setitem(claims.CLAIMS, "toy", TOY)
    run_study(request(tmp_path))
    assert MEASURED == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]


def test_units_are_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise SystemExit("killed while writing")

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(SystemExit):
        run_study(request(tmp_path))
    monkeypatch.undo()
    monkeypatch.setitem(claims.CLAIMS, "toy", TOY)
    assert not list((tmp_path / "work").glob("*.json"))
    run_study(request(tmp_path))
    assert len(list((tmp_path / "work").glob("*.json"))) == 6


def test_the_other_seeds_have_the_learning_rate_with_the_best_validation(tmp_path: Path) -> None:
    _, (finding,) = run_study(request(tmp_path, ("tunable",), seeds=3))
    assert TUNED[:6] == [(name, rate, 1) for name in ("lstm", "conv") for rate in (0.5, 1.0, 3.0)]
    assert TUNED[6:] == [("lstm", 1.0, 2), ("conv", 3.0, 2), ("lstm", 1.0, 3), ("conv", 3.0, 3)]
    assert sorted(row["y"] for row in finding.rows) == [101, 102, 103, 301, 302, 303]
    assert len(finding.units) == 10 and finding.results[0].verdict == "supported"
    assert networks_trained(finding)[1:] == [["lstm", "10", "1", "5", "10"], ["conv", "10", "3", "5", "10"]]


def test_the_estimate_counts_what_is_missing(tmp_path: Path) -> None:
    asked, work = request(tmp_path, ("tunable",), seeds=3), tmp_path / "work"
    assert estimate([TUNABLE], asked, work, "here").units == 10
    assert estimate([TUNABLE], replace(asked, jobs=2), work, "here").seconds == 5
    assert estimate([replace(TUNABLE, timed=True)], replace(asked, jobs=2), work, "here").seconds == 10
    run_study(replace(asked, seeds=2))
    assert estimate([TUNABLE], asked, work, "here").units == 2


def test_statements_are_open_until_everything_is_measured(tmp_path: Path) -> None:
    run_study(request(tmp_path, seeds=2))
    _, (finding,) = run_study(replace(request(tmp_path, seeds=3), report=True))
    assert len(MEASURED) == 6 and finding.missing == 3
    assert finding.counted == "1 open" and "3 of 9 measurements are missing" in finding.note
    assert "3 of 9" in (tmp_path / "study.md").read_text(encoding="utf-8")


KILLED = """
from pathlib import Path
from headwise.lab.study.claim import Plan
from headwise.lab.study.run import StudyRequest, run_study
if __name__ == "__main__":
    run_study(StudyRequest(Path({out!r}), ("gradients",), 2, Plan("toy"), jobs=2))
"""


@pytest.mark.thorough
def test_a_killed_study_keeps_its_measurements_and_leaves_no_process(tmp_path: Path) -> None:
    script, work = tmp_path / "script.py", tmp_path / "out" / "work"
    script.write_text(KILLED.format(out=str(tmp_path / "out")), encoding="utf-8")
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True, stderr=subprocess.DEVNULL)
    group = process.pid
    while not list(work.glob("*.json")) and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    with pytest.raises(ProcessLookupError):
        while True:  # its workers end by themselves
            os.killpg(group, 0)
            time.sleep(0.02)
    kept = {path: path.stat().st_mtime_ns for path in work.glob("*.json")}
    total = len(tuning_units(claims.CLAIMS["gradients"], Plan("toy")))
    assert 0 < len(kept) < total
    _, (finding,) = run_study(StudyRequest(tmp_path / "out", ("gradients",), 1, Plan("toy")))
    assert finding.missing == 0 and len(finding.units) == total
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


class Page(HTMLParser):
    """Collects tags and addresses in attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag == "img":
            self.images.append(dict(attrs))


def test_the_report_needs_no_other_files(tmp_path: Path) -> None:
    path, findings = run_study(request(tmp_path, ("toy", "without-data")))
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?:|@import|url\(|<script|<link (?!rel=\"icon\" href=\"data:)", text)
    assert "default-src 'none'; style-src 'sha256-" in html.unescape(text)
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert len(page.images) == 1 and page.images[0]["alt"] == 'Says "nothing".'
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert "A &lt;toy&gt; &amp; more." in text
    assert "give it data." in text and "mean &lt;of&gt; y" in text
    assert (tmp_path / "figures" / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert [finding.counted for finding in findings] == ["1 supported", "1 open"]


def test_the_report_has_every_number(tmp_path: Path) -> None:
    run_study(request(tmp_path))
    found = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    (toy,) = found["claims"]
    (mean,) = toy["statements"]
    assert (mean["value"], mean["samples"], mean["verdict"]) == (pytest.approx(7.15), 2, "supported")
    assert mean["low"] < 7.15 < mean["high"] and mean["threshold"] == "above 5"
    assert len(toy["units"]) == 6 and toy["units"][0]["condition"] == {"x": 1, "noise": 0.1}
    assert toy["units"][0]["rows"] == [{"y": 1.1, "network": "lstm", "parameters": 10}]
    assert {"torch", "numpy", "python"} <= set(found["about"]["versions"])
    assert found["about"]["machine"] and found["about"]["command"]


def test_lines_for_the_user(tmp_path: Path) -> None:
    lines = study(request(tmp_path, ("toy", "without-data")))
    assert lines[:3] == ["toy: 1 supported", "  supported  The mean is large.", "without-data: 1 open"]
    assert lines[-1] == f"Report: {tmp_path / 'study.html'}"


def test_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'order'"):
        run_study(request(tmp_path, ("ordr",)))
    with pytest.raises(UserError, match="--seeds -1"):
        run_study(request(tmp_path, seeds=-1))
    with pytest.raises(UserError, match="no such folder"):
        request_of("out", True, [], 0, str(tmp_path / "nowhere"), "cpu", 1, False)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made"):
        run_study(request(tmp_path / "file"))


def test_the_command_in_the_report_has_no_paths(tmp_path: Path) -> None:
    asked = request_of("out", True, ["order"], 2, str(tmp_path), "cpu", 2, False)
    assert asked.command == f"headwise study --quick --only order --seeds 2 --data {tmp_path.name} --jobs 2"
    assert asked.plan == Plan("quick", "cpu", tmp_path)


def test_command_line_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "--quick", "--only", "toy", "--out", str(tmp_path), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("toy: ")
    assert cli.main(["study", "--only", "ordr"]) == 2
    assert "did you mean 'order'" in capsys.readouterr().err


def test_full_translation_needs_data(tmp_path: Path) -> None:
    claim = claims.CLAIMS["translation"]
    assert claim.conditions(Plan("full")) == [] and claim.needs
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / "train.en.gz").touch()
    assert {condition.corpus for condition in claim.conditions(Plan("full", data=tmp_path))} == {"multi30k"}
