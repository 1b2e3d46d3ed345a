"""COMET with a stand-in for Unbabel's package, whose network rates a translation by the letters of all three texts."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.cli import main
from headwise.errors import UserError
from headwise.evaluate.bleu import measures
from headwise.evaluate.report import evaluate_model
from headwise.lab.results.hypotheses import EvaluationSet
from headwise.lab.results.runs import Group
from headwise.lab.results.table import score_table

SOURCES, LINES, REFERENCES = ["a dog", "b c"], ["ein Hund", "b"], ["Hund", "b c"]  # rated 0.6 and -0.2


def rate(sample: Mapping[str, str]) -> float:
    return (len(sample["mt"]) + len(sample["src"]) * 2 - len(sample["ref"]) * 3) / 10


class Network:
    def predict(self, samples: Sequence[Mapping[str, str]], **settings: Any) -> Any:
        return SimpleNamespace(scores=[rate(sample) for sample in samples])


def load(checkpoint: Path, local_files_only: bool) -> Network:
    if checkpoint.read_text(encoding="utf-8") == "broken" or not local_files_only:
        raise OSError("no such encoder")
    return Network()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The metric of a local model."""
    package = SimpleNamespace(__version__="2.2.7", load_from_checkpoint=load)
    monkeypatch.setitem(sys.modules, "comet", package)
    (tmp_path / "rater" / "checkpoints").mkdir(parents=True)
    for name in ("hparams.yaml", "checkpoints/model.ckpt"):
        (tmp_path / "rater" / name).write_text("", encoding="utf-8")
    return f"comet:{tmp_path / 'rater'}"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"src": SOURCES, "hyp": LINES, "ref": REFERENCES}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


SCORED = ["evaluate", "--hypothesis", "hyp", "--reference", "ref", "--format", "json"]


def test_a_corpus_has_the_mean_of_its_lines(model: str, files: None, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = f"{model}/checkpoints/model.ckpt"
    assert main([*SCORED, "--source", "src", "--metric", "BLEU", model, checkpoint, "--against", "ref"]) == 0
    report = json.loads(capsys.readouterr().out)
    name = model.partition(":")[2]
    assert report[model]["score"] == report[checkpoint]["score"] == pytest.approx(20)
    assert report[model]["signature"] == f"nrefs:1|comet:2.2.7|model:{name}|precision:float32"
    compared = report["against"][model]
    assert (compared["a"]["score"], compared["b"]["score"]) == pytest.approx((20, 10))


def test_mistakes_are_one_line(model: str, files: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rater" / "checkpoints" / "other.ckpt").write_text("broken", encoding="utf-8")
    broken = f"{model}/checkpoints/other.ckpt"
    for arguments, why in (
        (["--metric", model], "add --source"),
        (["--metric", model, "--source", "src", "--reference", "ref", "ref"], "one reference, not 2"),
        (["--metric", "comet:absent", "--source", "src"], "absent is no COMET model"),
        (["--metric", "comet:src", "--source", "src"], "src is no COMET model"),
        (["--metric", broken, "--source", "src"], "other.ckpt cannot be loaded: no such encoder"),
        (["--metric", "BLEU", "--source", "src"], "--source does not go with --hypothesis"),
        (["--metric", "BLEU:" + model], "unknown metric"),
    ):
        assert main([*SCORED, *arguments]) == 2
        message = capsys.readouterr().err
        assert why in message and message.count("\n") == 1


def test_nothing_is_translated_for_a_metric_that_is_missing(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = SimpleNamespace(translate=lambda *_, **__: pytest.fail("translated"))
    with pytest.raises(UserError, match="one reference"):
        evaluate_model(translator, SOURCES, [REFERENCES, REFERENCES], metrics=[model])  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(UserError, match=r'pip install "headwise\[comet\]"'):
        evaluate_model(translator, SOURCES, [REFERENCES], metrics=["comet"])  # type: ignore[arg-type]


def test_only_a_name_of_the_hub_is_downloaded(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str) -> str:
        if name != "owner/rater":
            raise KeyError(name)
        return f"{model.partition(':')[2]}/checkpoints/model.ckpt"

    monkeypatch.setattr(sys.modules["comet"], "download_model", download, raising=False)
    assert "|model:owner/rater|" in measures(["comet:hf:owner/rater"])[0].signature()
    with pytest.raises(UserError, match="cannot be downloaded"):
        measures(["comet:hf:owner/other"])
    with pytest.raises(UserError, match="a download is comet:hf:"):
        measures(["comet:owner/rater"])


def test_runs_are_compared_by_it(model: str) -> None:
    group = Group("a", [SimpleNamespace(name="a-1")])  # type: ignore[list-item]
    test = EvaluationSet("news", SOURCES, [REFERENCES])
    cell = score_table([group], [test], {"a-1": {"news": LINES}}, measures([model])).rows[0].cells[0]
    assert cell is not None and cell.mean == pytest.approx(20)
