"""The study can be resumed, brackets learning rates, adds seeds while undecided, and writes a self-contained report."""

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
from typing import Any

import pytest
import torch

from headwise import cli
from headwise.errors import UserError
from headwise.evaluate.pages.figures import Figure, Panel
from headwise.lab.study import claims, gradients, translation
from headwise.lab.study.claim import Claim, Plan, mean_of, series
from headwise.lab.study.finding import networks_trained
from headwise.lab.study.run import StudyRequest, plan_lines, request_of, run_study, state_of, study
from headwise.lab.study.statement import Looks, Row, Statement, over_seeds
from headwise.lab.study.tuning import tune
from headwise.lab.study.units import Store, Unit, measure_unit


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
    cost=60.0,
    looks=Looks(2, 4),
)


@dataclass(frozen=True)
class Tuned:
    network: str
    steps: int
    rate: float


def measure_tuned(condition: Tuned, seed: int) -> list[Row]:
    """The LSTM is best at its own rate, the other network at 27 times as much."""
    TUNED.append((condition.network, condition.steps, round(condition.rate, 2), seed))
    validation = -abs(condition.rate - (1.0 if condition.network == "lstm" else 27.0))
    return [{"x": 1, "y": 100 * condition.rate + seed, "validation": validation, "diverged": 2, "parameters": 10}]


TUNED: list[tuple[str, int, float, int]] = []
TUNABLE = replace(
    TOY,
    name="tunable",
    conditions=lambda plan: [Tuned(name, 8, 1.0) for name in ("lstm", "conv")],
    measure=measure_tuned,
)
SHARING = replace(TUNABLE, name="sharing", conditions=lambda plan: [Tuned("lstm", 8, 1.0)])
UNMEASURABLE = replace(TOY, name="without-data", conditions=lambda plan: [], needs="give it data.")


@pytest.fixture(autouse=True)
def toy_claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    MEASURED.clear()
    TUNED.clear()
    for name in list(claims.CLAIMS):  # the report looks at all of them
        monkeypatch.delitem(claims.CLAIMS, name)
    for claim in (TOY, TUNABLE, SHARING, UNMEASURABLE):
        monkeypatch.setitem(claims.CLAIMS, claim.name, claim)
    yield


def request(out: Path, only: tuple[str, ...] = ("toy",), **options: Any) -> StudyRequest:
    return StudyRequest(out, only, **options)


def test_a_rerun_measures_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_study(request(tmp_path))
    assert MEASURED == [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]  # seeds outermost
    run_study(request(tmp_path))
    assert len(MEASURED) == 6
    changed = replace(TOY, conditions=lambda plan: [Condition(1, 0.1), Condition(2, 0.2), Condition(4, 0.1)])
    monkeypatch.setitem(claims.CLAIMS, "toy", changed)
    run_study(request(tmp_path))
    assert MEASURED[6:] == [(2, 1), (2, 2)]


def test_seeds_are_added_only_while_a_statement_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = replace(TOY, statements=(replace(MEAN, above=7.2),))  # means of 7.1, 7.2, 7.3 and so on
    monkeypatch.setitem(claims.CLAIMS, "toy", near)
    _, (finding,) = run_study(request(tmp_path))
    assert MEASURED[6:] == [(x, seed) for seed in (3, 4) for x in (1, 2, 4)]
    assert finding.counted == "1 undecided" and finding.waiting == 0


def test_all_claims_get_their_first_seeds_before_any_gets_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undecided = replace(TOY, statements=(replace(MEAN, above=7.2),))
    other = replace(undecided, name="other", conditions=lambda plan: [Condition(3, 0.1)])
    for claim in (undecided, other):
        monkeypatch.setitem(claims.CLAIMS, claim.name, claim)
    run_study(request(tmp_path, ("toy", "other")))
    seeds = [seed for _, seed in MEASURED]
    assert seeds[:8] == [1, 1, 1, 2, 2, 2, 1, 2] and set(seeds[8:]) == {3, 4}


def test_an_error_in_one_claim_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(condition: Condition, seed: int) -> list[Row]:
        if condition.x == 2:
            raise ZeroDivisionError("of this claim")
        return measure(condition, seed)

    other = replace(TOY, name="other", conditions=lambda plan: [Condition(3, 0.1)])
    for claim in (replace(TOY, measure=broken), other):
        monkeypatch.setitem(claims.CLAIMS, claim.name, claim)
    with pytest.raises(ZeroDivisionError, match="of this claim"):
        run_study(request(tmp_path, ("toy", "other")))
    assert MEASURED == [(1, 1), (3, 1), (3, 2)]
    assert "other" in (tmp_path / "study.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("timed", [True, False])
def test_times_are_those_of_one_thread(timed: bool) -> None:
    claim = replace(TOY, timed=timed, measure=lambda condition, seed: [{"threads": torch.get_num_threads()}])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert measure_unit(Unit(claim, Condition(1, 0.1), 1))["rows"] == [{"threads": 1 if timed else 2}]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


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

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(SystemExit):
            run_study(request(tmp_path))
    assert not list((tmp_path / "work").glob("*.json"))
    run_study(request(tmp_path))
    assert len(list((tmp_path / "work").glob("*.json"))) == 6


def test_learning_rates_are_extended_until_the_best_is_inside(tmp_path: Path) -> None:
    """Tuning has a quarter of the updates, and other claims share the trainings."""
    _, (tunable, sharing) = run_study(request(tmp_path, ("tunable", "sharing")))
    assert TUNED[:6] == [(name, 2, rate, 1) for name in ("lstm", "conv") for rate in (0.33, 1.0, 3.0)]
    assert TUNED[6:9] == [("conv", 2, rate, 1) for rate in (9.0, 27.0, 81.0)]
    assert TUNED[9:] == [(name, 8, rate, seed) for seed in (1, 2) for name, rate in (("lstm", 1.0), ("conv", 27.0))]
    assert (tunable.at_edge, sharing.shared) == ([], {"tunable": 2})
    assert "the same trainings as those of tunable (2)" in sharing.note
    assert networks_trained(tunable)[1:] == [["lstm", "10", "1", "5", "10"], ["conv", "10", "27", "8", "16"]]


def test_a_best_rate_at_the_edge_is_said() -> None:
    rising = tune(Tuned("lstm", 8, 1.0), lambda condition: condition.rate)
    assert (len(rising.tried), rising.at_edge, rising.chosen.steps) == (6, True, 8)
    assert rising.chosen.rate == pytest.approx(81.0)
    level = tune(Tuned("lstm", 8, 1.0), lambda condition: 1.0)
    assert (level.chosen.rate, level.at_edge) == (1.0, False)
    broken = tune(Tuned("lstm", 8, 1.0), lambda condition: float("nan") if condition.rate > 0.5 else 1.0)
    assert broken.chosen.rate < 0.5


@pytest.mark.parametrize("full", [-2.0, 0.0, 2.0, float("nan")])
def test_two_rates_that_are_close_are_trained_in_full(full: float) -> None:
    """`full` is the validation of the second rate after all updates; that of the first is -1."""
    short = {1 / 3: 0.0, 1.0: 10.0, 3.0: 9.0, 9.0: -5.0}  # the last one is tried because the second lies at the edge
    done: dict[float, float] = {}

    def validation(condition: Tuned) -> float | None:
        return short[condition.rate] if condition.steps == 2 else done.get(condition.rate)

    waiting = tune(Tuned("lstm", 8, 1.0), validation)
    assert [(one.steps, one.rate) for one in waiting.waiting] == [(8, 1.0), (8, 3.0)] and waiting.chosen is None
    done.update({1.0: -1.0, 3.0: full})
    tuned = tune(Tuned("lstm", 8, 1.0), validation)
    rate, loser = (3.0, 1.0) if full > -1 else (1.0, 3.0)
    assert (tuned.chosen.rate, tuned.at_edge) == (rate, False)
    assert [(one.steps, one.rate) for one in tuned.tried[3:]] == [(2, 9.0), (8, loser)]
    assert tune(Tuned("lstm", 8, 1.0), validation, 0).chosen.rate == 1.0  # a quick study tries three rates
    short[3.0] = 8.0
    assert tune(Tuned("lstm", 8, 1.0), validation).chosen.rate == 1.0  # not close


def test_the_plan_counts_what_is_missing_and_shared(tmp_path: Path) -> None:
    asked, work = request(tmp_path, jobs=2), Store(tmp_path, "here")
    lines, seconds = plan_lines([TUNABLE, SHARING], asked, work)
    assert re.search(r"^tunable +10 measurements", lines[0]) and "5 more are shared" in lines[1]
    assert seconds == (6 / 4 + 4) * 60 / 2
    untrained = replace(TUNABLE, conditions=lambda plan: [Tuned("lstm", 0, 0.0), Tuned("lstm", 8, 1.0)])
    assert plan_lines([untrained], request(tmp_path), work)[1] == (2 + 3 / 4 + 2) * 60
    run_study(request(tmp_path / "out"))
    assert plan_lines([TOY], asked, Store(tmp_path / "out/work", "here"))[1] == 0


def test_nothing_is_judged_before_all_networks_have_the_first_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_study(request(tmp_path))
    monkeypatch.setitem(claims.CLAIMS, "toy", replace(TOY, looks=Looks(3, 4)))
    _, (finding,) = run_study(request(tmp_path, report=True))
    assert len(MEASURED) == 6 and (len(finding.units), finding.waiting) == (6, 3)
    assert finding.counted == "1 not measured yet" and "at least 3 are missing" in finding.note
    assert "Not measured yet: `toy`." in (tmp_path / "study.md").read_text(encoding="utf-8")


def test_a_study_continues_from_a_report(tmp_path: Path) -> None:
    run_study(request(tmp_path / "first", ("toy", "tunable")))
    MEASURED.clear()
    TUNED.clear()
    report = str(tmp_path / "first/study.json")
    _, (toy, _) = run_study(request(tmp_path / "second", ("toy", "tunable"), earlier=report))
    assert not MEASURED and not TUNED and toy.counted == "1 supported"
    assert state_of(TOY, Plan(), Store(tmp_path / "second/work", "")).waiting == []
    (tmp_path / "bad.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=r"--measured .*bad\.json"):
        run_study(request(tmp_path / "third", earlier=str(tmp_path / "bad.json")))
    assert not (tmp_path / "third").exists()


def test_a_quick_study_gives_no_verdicts(tmp_path: Path) -> None:
    lines = study(request(tmp_path, plan=Plan("quick")))
    assert lines == ["toy: runs", "", f"Figures: {tmp_path / 'study.html'}"]
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("study.md", "study.html")]
    assert all("no verdicts" in text and MEAN.text not in text for text in texts)


KILLED = """
from pathlib import Path
from headwise.lab.study.claim import Plan
from headwise.lab.study.run import StudyRequest, run_study
if __name__ == "__main__":
    run_study(StudyRequest(Path({out!r}), ("gradients",), Plan("quick"), jobs=2))
"""


@pytest.mark.thorough
def test_a_killed_study_keeps_its_measurements_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setitem(claims.CLAIMS, "gradients", gradients.CLAIM)
    _, (finding,) = run_study(StudyRequest(tmp_path / "out", ("gradients",), Plan("quick")))
    assert finding.waiting == 0 and 0 < len(kept) < len(finding.units) + len(finding.tuning)
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
    assert [finding.counted for finding in findings] == ["1 supported", "1 not measured yet"]


def test_the_report_has_every_number(tmp_path: Path) -> None:
    run_study(request(tmp_path))
    found = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    (toy,) = found["claims"]
    (mean,) = toy["statements"]
    assert (mean["value"], mean["samples"], mean["verdict"]) == (pytest.approx(7.15), 2, "supported")
    assert mean["low"] < 7.15 < mean["high"] and mean["threshold"] == "above 5"
    units = [found["units"][key] for key in toy["units"]]
    assert len(units) == 6 and units[0]["condition"] == {"x": 1, "noise": 0.1}
    assert units[0]["rows"] == [{"y": 1.1, "network": "lstm", "parameters": 10}]
    assert {"torch", "numpy", "python"} <= set(found["about"]["versions"])
    assert found["about"]["machine"] and found["about"]["command"]


def test_lines_for_the_user(tmp_path: Path) -> None:
    lines = study(request(tmp_path, ("toy", "without-data")))
    assert lines[0] == "toy: 1 supported" and lines[1].startswith("  Yes: The mean is large. Measured: 7.15, ")
    assert lines[2:] == ["without-data: 1 not measured yet", "", f"Report: {tmp_path / 'study.html'}"]


def test_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'toy'"):
        run_study(request(tmp_path, ("tyo",)))
    with pytest.raises(UserError, match="--jobs 0"):
        run_study(request(tmp_path, jobs=0))
    with pytest.raises(UserError, match="no such folder"):
        request_of("out", True, [], str(tmp_path / "nowhere"), "cpu", 1, False, "")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made"):
        run_study(request(tmp_path / "file"))


def test_the_command_in_the_report_has_no_paths(tmp_path: Path) -> None:
    asked = request_of("out", True, ["order"], str(tmp_path), "cpu", 2, False, str(tmp_path / "x.json"))
    assert asked.command == f"headwise study --quick --only order --data {tmp_path.name} --jobs 2"
    assert asked.plan == Plan("quick", "cpu", tmp_path)


def test_command_line_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "--quick", "--only", "toy", "--out", str(tmp_path), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("toy: ")
    assert cli.main(["study", "--only", "tyo"]) == 2
    assert "did you mean 'toy'" in capsys.readouterr().err


def test_full_translation_needs_data(tmp_path: Path) -> None:
    assert translation.conditions(Plan("full")) == [] and translation.CLAIM.needs
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / "train.en.gz").touch()
    assert {condition.corpus for condition in translation.conditions(Plan("full", data=tmp_path))} == {"multi30k"}
