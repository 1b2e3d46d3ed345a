"""The study can be resumed, measures changed conditions again, and writes a self-contained report."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headwise import cli
from headwise.errors import UserError
from headwise.report.figures import Figure, Panel
from headwise.study import claims
from headwise.study import run as running
from headwise.study.claim import Claim, Plan, Row, Verdict, mean_of, series
from headwise.study.run import StudyRequest, request_of, run_study, study


@dataclass(frozen=True)
class Condition:
    x: int
    noise: float


MEASURED: list[tuple[int, int]] = []  # (x, seed) of every unit done


def measure(condition: Condition, seed: int) -> list[Row]:
    MEASURED.append((condition.x, seed))
    return [{"y": condition.x**2 + condition.noise * seed, "network": "lstm", "parameters": 10}]


def figures(rows: list[Row]) -> list[Figure]:
    return [
        Figure(
            "toy",
            "A <toy> & more.",
            'Says "nothing".',
            [Panel("t", "x (m)", "y (m²)", [series(rows, "lstm", "x", "y")])],
        )
    ]


def judge(rows: list[Row]) -> Verdict:
    return Verdict("held" if mean_of(rows, "y") > 5 else "not held", f"the mean is {mean_of(rows, 'y'):.2f} < 99.")


TOY = Claim(
    name="toy",
    sentence="Squares grow.",
    source="arithmetic",
    method="Squaring.",
    conditions=lambda plan: [Condition(x, 0.1) for x in (1, 2, 4)],
    measure=measure,
    figures=figures,
    judge=judge,
    seeds={"toy": 2, "quick": 2, "full": 3},
    cost={"toy": 1.0, "quick": 1.0, "full": 1.0},
)
UNMEASURABLE = replace(TOY, name="without-data", conditions=lambda plan: [], needs="give it data.")


@pytest.fixture(autouse=True)
def toy_claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    MEASURED.clear()
    for claim in (TOY, UNMEASURABLE):
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
    unit = running.Unit(TOY, Condition(1, 0.1), 1)
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
    assert "A &lt;toy&gt; &amp; more." in text and "&lt; 99." in text
    assert "give it data." in text and "not measured" in text
    assert (tmp_path / "figures" / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert [finding.verdict is None for finding in findings] == [False, True]


def test_the_report_has_every_number(tmp_path: Path) -> None:
    run_study(request(tmp_path))
    found = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    (toy,) = found["claims"]
    assert toy["verdict"] == {"held": "held", "reason": "the mean is 7.15 < 99."}
    assert toy["rows"][0] == {"x": 1, "noise": 0.1, "seed": 1, "y": 1.1, "network": "lstm", "parameters": 10}
    assert {"torch", "numpy", "python"} <= set(found["about"]["versions"])
    assert found["about"]["machine"] and found["about"]["command"]


def test_lines_for_the_user(tmp_path: Path) -> None:
    lines = study(request(tmp_path, ("toy", "without-data")))
    assert lines[0].split() == ["toy", "held"]
    assert lines[1].split() == ["without-data", "not", "measured"]
    assert lines[-1] == f"Report: {tmp_path / 'study.html'}"


def test_invalid_arguments(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'order'"):
        run_study(request(tmp_path, ("ordr",)))
    with pytest.raises(UserError, match="--seeds -1"):
        run_study(request(tmp_path, seeds=-1))
    with pytest.raises(UserError, match="no such folder"):
        request_of("out", True, [], 0, str(tmp_path / "nowhere"), "cpu")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made"):
        run_study(request(tmp_path / "file"))


def test_the_command_in_the_report_has_no_paths(tmp_path: Path) -> None:
    asked = request_of("out", True, ["order"], 2, str(tmp_path), "cpu")
    assert asked.command == f"headwise study --quick --only order --seeds 2 --data {tmp_path.name}"
    assert asked.plan == Plan("quick", "cpu", tmp_path)


def test_command_line_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "--quick", "--only", "toy", "--out", str(tmp_path), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("toy ")
    assert cli.main(["study", "--only", "ordr"]) == 2
    assert "did you mean 'order'" in capsys.readouterr().err


def test_full_translation_needs_data(tmp_path: Path) -> None:
    claim = claims.CLAIMS["translation"]
    assert claim.conditions(Plan("full")) == [] and claim.needs
    (tmp_path / "multi30k").mkdir()
    (tmp_path / "multi30k" / "train.en.gz").touch()
    assert {condition.corpus for condition in claim.conditions(Plan("full", data=tmp_path))} == {"multi30k"}
