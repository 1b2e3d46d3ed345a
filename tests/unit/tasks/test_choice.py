"""`train --minutes` without a recipe: settings from the table of measurements."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.config.settings import apply_settings, load_recipe
from headwise.errors import UserError
from headwise.pytorch.tasks import choice, train
from headwise.pytorch.tasks.choice import (
    CorpusSize,
    choose,
    chooses_recipe,
    measurements,
    seconds_of_update,
    with_earlier_choice,
)
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.pytorch.training import trainer
from headwise.runtime.checkpoint.trained import write_settings

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks/results"
CAPTIONS = CorpusSize(29_000, 430_000, 450_000)


@pytest.mark.skipif(not RESULTS.is_dir(), reason="results are not part of the source distribution")
@pytest.mark.parametrize("row", measurements(), ids=str)
def test_the_table_has_figures_of_results(row: choice.Measurement) -> None:
    assert f" {row.bleu}" in (RESULTS / row.source).read_text(encoding="utf-8")
    assert row.dropout in (load_recipe(row.recipe).model.dropout, choice.SHORT_DROPOUT)


def test_the_better_size_of_the_nearest_measurement_is_chosen() -> None:
    assert choose(CAPTIONS, 7.0).recipe == "tiny"
    assert choose(CAPTIONS, 60.0).recipe == "tiny"
    better = [replace(row, bleu=99.0) if row.recipe == "small" else row for row in measurements()]
    assert choose(CAPTIONS, 7.0, table=better).recipe == "small"
    assert choose(CAPTIONS, 60.0, table=better).recipe == "tiny"  # not measured


def test_the_best_of_every_other_size_is_named() -> None:
    named = choose(CAPTIONS, 10.0).before[1]
    rows = [row.bleu for row in measurements() if (row.corpus, row.recipe) == ("Multi30k, English to German", "small")]
    assert sorted(rows)[0] < sorted(rows)[1] and named.count(", small ") == 1
    assert f", small {sorted(rows)[1]}" in named  # of seven and of ten minutes


def test_a_short_run_has_less_dropout() -> None:
    assert choose(CAPTIONS, 7.0).settings[0] == "model.dropout=0.1"
    assert choose(CAPTIONS, 60.0).settings[0] == "model.dropout=0.3"


def test_a_fast_machine_has_more_minutes() -> None:
    assert choose(CAPTIONS, 6.0, speed=10.0).settings == choose(CAPTIONS, 60.0).settings


def test_few_words_get_a_small_vocabulary() -> None:
    assert choose(CAPTIONS, 7.0).settings[1] == "data.vocab_size=10000"
    assert choose(CorpusSize(1000, 15_000, 15_000), 7.0).settings[1] == "data.vocab_size=600"


def test_what_was_not_measured_is_named() -> None:
    named = [any(line.startswith("not measured") for line in choose(*run).before) for run in RUNS]
    assert named == [False, True, True, True, True]
    assert any(line.startswith("expected: not known") for line in choose(*RUNS[1]).before)


RUNS = [  # the pairs of the last one were measured for 90 minutes at most
    (CAPTIONS, 7.0),
    (CAPTIONS, 7000.0),
    (CAPTIONS, 0.5),
    (replace(CAPTIONS, pairs=5_000_000), 30.0),
    (replace(CAPTIONS, pairs=160_000), 300.0),
]


def test_the_expectation_is_the_mean_of_corpora_with_its_error() -> None:
    found = [replace(measurements()[0], corpus=name, bleu=bleu) for name, bleu in (("a", 30.0), ("b", 40.0))]
    assert choose(CAPTIONS, 7.0, table=found).before[-1].startswith("expected: 35 BLEU, with a mean error of 10 ")


def test_more_time_and_pairs_are_advised_with_their_gain() -> None:
    first = measurements()[0]
    longer = replace(first, updates=3 * first.updates, bleu=first.bleu + 2)
    more = replace(first, pairs=2 * first.pairs, bleu=first.bleu + 5)
    found = choose(CAPTIONS, 7.0, table=[first, longer, more])
    assert "3.0 times the minutes gained 2.0 BLEU" in found.after
    assert "2.0 times the pairs gained 5.0 BLEU" in found.after
    assert any(line.startswith("expected: ") and "2.0 times the pairs gained 5.0" in line for line in found.before)


def test_a_larger_model_fine_tuning_and_a_glossary_are_compared() -> None:
    first = measurements()[0]
    larger = replace(first, recipe="small", bleu=first.bleu - 4)
    few = CorpusSize(1200, 15_000, 15_000)
    captions, little = (choose(corpus, 7.0, table=[first, larger]).after for corpus in (CAPTIONS, few))
    assert f"small had {larger.bleu} instead of {first.bleu} BLEU" in captions
    assert "fine-tuning a general model had 37.2 instead of 37.4 BLEU with 10,000 pairs" in captions
    assert "fine-tuning a general model had 24.8 instead of 17.8 BLEU with 1,000 pairs" in little
    assert "fine-tuning" not in choose(replace(CAPTIONS, pairs=160_000), 7.0).after
    assert "36.8 %" in captions


@pytest.mark.skipif(not RESULTS.is_dir(), reason="results are not part of the source distribution")
def test_the_figures_of_a_glossary_are_those_of_its_results() -> None:
    text = (RESULTS / "glossaries_1-core-cpu-avx2_2026-11-23.md").read_text(encoding="utf-8")
    with_terms, without, loss = choice.GLOSSARY
    assert f"| plain | alone | {without}% |" in text and f"| plain | terms constrained | {with_terms}% |" in text
    assert f"BLEU falls by {loss}" in text


def test_a_machine_is_timed() -> None:
    config = apply_settings(load_recipe("tiny"), [*SMALL, "train.tokens_per_batch=60"])
    assert seconds_of_update(request("out"), config) > 0


SMALL = [
    *("model.d_model=8", "model.d_ff=16", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("train.tokens_per_batch=60", "train.validate_bleu=0", "train.threads=1"),
]


def request(out: Path | str, **given: Any) -> TrainRequest:
    files: dict[str, Any] = {"train": ["a.tsv"], "valid": ["2pairs"], "device": "cpu", "show": False}
    return TrainRequest("", out=str(out), **{**files, "settings": ["train.minutes=0.5", *SMALL], **given})


@pytest.mark.parametrize("train", ["-", "stream:a*.tsv"])
def test_pairs_that_cannot_be_counted_need_a_recipe(train: str) -> None:
    with pytest.raises(UserError, match="--recipe"):
        chooses_recipe(request("out", train=[train]))


def test_other_tasks_and_torchrun_need_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--recipe"):
        chooses_recipe(request("out", task="lm"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="--recipe"):
        chooses_recipe(request("out"))


def test_a_recipe_or_a_number_of_updates_leaves_nothing_to_choose() -> None:
    assert chooses_recipe(request("out"))
    assert not chooses_recipe(request("out", settings=["train.max_steps=5"]))
    assert not chooses_recipe(replace(request("out"), recipe="small"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        *(({"settings": [f"train.minutes={minutes}"]}, "train.minutes") for minutes in ("nan", "inf", "-1")),
        ({"settings": ["train.minutes=1", "train.max_steps=5"]}, "leave one out"),
        ({"settings": ["train.minutes=1", "train.learning_rate=nan"]}, "train.learning_rate"),
        ({"valid": []}, "--valid is required"),
        ({"valid": ["missing.tsv"]}, "missing.tsv"),
        ({"train": ["missing.tsv"]}, "missing.tsv"),
        ({"out": "taken"}, "already has config.json"),
    ],
    ids=str,
)
def test_mistakes_are_reported_before_anything_is_read_or_timed(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.tsv").write_text("one\teins\n" * 9, encoding="utf-8")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/config.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "with_choice", lambda *given: pytest.fail("nothing is chosen"))
    with pytest.raises(UserError, match=said):
        train_model(replace(request("out"), **changes))


def test_a_resumed_run_keeps_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"number {n} of many\tZahl {n} von vielen\n" for n in range(40)), encoding="utf-8")
    given = request(tmp_path / "out", train=[str(pairs)], started=0.0)
    monkeypatch.setattr(choice, "seconds_of_update", lambda *given: 0.26)
    assert train_model(replace(given, show=True)) == "finished"
    lines = capsys.readouterr().err
    assert "chosen: tiny" in lines
    assert "as measured" in lines
    config = json.loads((tmp_path / "out/config.json").read_text(encoding="utf-8"))
    assert (config["recipe"], config["data"]["vocab_size"]) == ("tiny", 300)
    monkeypatch.setattr(choice, "seconds_of_update", lambda *given: pytest.fail("a resumed run measures nothing"))
    longer = [*SMALL, "train.minutes=1"]
    assert train_model(replace(given, settings=longer, resume=True, show=True)) == "finished"
    assert "as measured" in capsys.readouterr().err
    del config["corpus"]["pairs"]  # as of a stream, whose pairs are not counted
    (tmp_path / "out/config.json").write_text(json.dumps(config), encoding="utf-8")
    resumed, after = with_earlier_choice(replace(given, resume=True))
    assert (resumed.recipe, after) == ("tiny", "")


class Checked(Exception):
    """Raised when the settings have been accepted."""


def test_a_resumed_run_of_another_task_keeps_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings(tmp_path, load_recipe("gpt"), None, {"recipe": "gpt"})

    def accepted(files: object) -> None:
        raise Checked

    monkeypatch.setattr(train, "check_files", accepted)
    settings = ["train.minutes=1", "data.block_length=8"]  # a setting that only language models have
    with pytest.raises(Checked):
        train_model(request(tmp_path, settings=settings, resume=True))
