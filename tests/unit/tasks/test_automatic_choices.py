"""`train.batching` and `train.precision` = "auto": the choice, and that a resumed run keeps it."""

from dataclasses import replace
from pathlib import Path

import pytest

from headwise.config.settings import RunConfig, apply_settings, load_recipe
from headwise.pytorch.tasks.automatic import resolve_auto, tuning_settings, warn_of_padding
from headwise.pytorch.tasks.initial_model import merged_config
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.training.packed import LONGEST, NARROWEST
from headwise.runtime.checkpoint.trained import write_settings
from headwise.runtime.native.library import training_library

REQUEST = TrainRequest("tiny", [], [], "out", device="cpu")
needs_library = pytest.mark.skipif(training_library() is None, reason="the compiled library is not there")


def choice(*settings: str, request: TrainRequest = REQUEST, folder: Path = Path("nowhere")) -> str:
    return resolve_auto(request, apply_settings(RunConfig(), settings), folder).batching


def precision(*settings: str, request: TrainRequest = REQUEST, folder: Path = Path("nowhere")) -> str:
    return resolve_auto(request, apply_settings(RunConfig(), settings), folder).precision


@pytest.fixture(params=[True, False], ids=["with units", "without"])
def units(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the processor multiplies in bfloat16."""
    monkeypatch.setattr("headwise.pytorch.training.packed.multiplies_bfloat16", lambda: request.param)
    return request.param


def test_random_batching_for_a_transformer_on_cpu() -> None:
    assert choice() == "random"
    assert choice("model.d_model=96", "model.n_heads=3") == "random"
    assert choice("train.precision=bf16") == "random"


@pytest.mark.parametrize(
    "setting",
    [
        "model.n_heads=128",  # heads of width 4
        "model.architecture=recurrent",
        "train.compile=true",
        "train.alignment_weight=0.1",
        f"data.max_length={LONGEST + 1}",
        "train.batching=bucketed",
    ],
)
def test_bucketed_batching_if_padding_is_needed(setting: str) -> None:
    assert choice(setting) == "bucketed"


@pytest.mark.parametrize("there", [True, False], ids=["with the library", "without"])
def test_batching_does_not_depend_on_the_library(
    there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But without it the run warns of padding."""
    monkeypatch.setattr("headwise.pytorch.training.packed.training_library", lambda: "a library" if there else None)
    assert choice() == "random"
    for batching, warns in (("random", not there), ("bucketed", False)):
        warn_of_padding(REQUEST, apply_settings(RunConfig(), [f"train.batching={batching}"]))
        said = capsys.readouterr().err.splitlines()
        assert [line.partition(",")[0] for line in said] == [
            "random batches have much padding without the compiled library"
        ] * warns


def test_a_resumed_run_keeps_its_batching(tmp_path: Path) -> None:
    """Even if this machine would choose another: a data position is only valid for its batching."""
    for began in ("bucketed", "random"):
        folder = tmp_path / began
        folder.mkdir()
        config = apply_settings(RunConfig(), [f"train.batching={began}"])
        write_settings(folder, config, None, {"corpus": {}})
        assert choice(request=replace(REQUEST, resume=True), folder=folder) == began


def test_a_run_from_an_initial_model_chooses_again() -> None:
    start = apply_settings(RunConfig(), ["train.batching=bucketed", "train.precision=bf16", "train.max_steps=7"])
    own = merged_config(replace(REQUEST, recipe="", init="model"), start)
    assert (own.train.batching, own.train.precision, own.train.max_steps) == ("auto", "auto", 7)


def test_tuning_keeps_the_search_settings_of_the_model() -> None:
    """A user may have stored them; only settings that are given now change them."""
    stored = ["decode.beam_size=7", "decode.length_penalty=0.3", "decode.max_length_extra=9", "decode.compute=int8"]
    start = apply_settings(RunConfig(), stored)
    tune = replace(REQUEST, recipe="tune", init="model")
    assert merged_config(tune, start).decode == start.decode
    changed = merged_config(replace(tune, settings=["decode.beam_size=2"]), start)
    assert changed.decode == replace(start.decode, beam_size=2)


@needs_library
def test_bf16_if_it_is_faster(units: bool) -> None:
    assert precision() == ("bf16" if units else "float32")
    assert precision(f"model.d_model={NARROWEST - 8}") == "float32"
    for setting in ("train.precision=float32", "train.compile=true", "model.architecture=recurrent"):
        assert precision(setting) == "float32"


def test_warning_if_bf16_may_be_slow(units: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert precision("train.precision=bf16", request=replace(REQUEST, show=True)) == "bf16"
    assert ("not known to be faster" in capsys.readouterr().err) is not units


def test_gpu_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.device._n_devices", lambda: 1)
    assert precision(request=replace(REQUEST, device="cuda")) == "auto"


@needs_library
def test_a_resumed_run_keeps_its_precision(units: bool, tmp_path: Path) -> None:
    for began in ("float32", "bf16", "auto"):  # "auto" is in folders of older runs
        folder = tmp_path / began
        folder.mkdir()
        config = apply_settings(RunConfig(), [f"train.precision={began}", "train.batching=random"])
        write_settings(folder, config, None, {"corpus": {}})
        assert precision(request=replace(REQUEST, resume=True), folder=folder) == began


TUNE = TrainRequest("tune", [], [], "out")


def tuned(pairs: int, folder: Path = Path("nowhere"), request: TrainRequest = TUNE) -> tuple[int, int]:
    config = apply_settings(load_recipe(request.recipe), request.settings)
    train = tuning_settings(request, config.train, folder, pairs, 0)
    return train.max_steps, train.validate_every


def test_many_pairs_are_tuned_for_longer() -> None:
    assert tuned(1_000) == (1000, 100)
    assert tuned(6_000) == (2400, 240)
    assert tuned(10_000) == tuned(1_000_000) == (4000, 400)


def test_updates_that_are_given_stay() -> None:
    assert tuned(10_000, request=replace(TUNE, settings=["train.max_steps=70"])) == (70, 100)
    assert tuned(10_000, request=replace(TUNE, settings=["train.minutes=5"])) == (1000, 100)
    assert tuned(10_000, request=replace(TUNE, settings=["train.validate_every=50"])) == (4000, 50)
    assert tuned(10_000, request=replace(TUNE, recipe="tiny"))[0] == load_recipe("tiny").train.max_steps


def test_a_resumed_tuning_keeps_its_updates(tmp_path: Path) -> None:
    config = load_recipe("tune")
    config = replace(config, train=tuning_settings(TUNE, config.train, tmp_path, 6_000, 100))
    write_settings(tmp_path, config, None, {})
    assert tuned(10_000, tmp_path, replace(TUNE, resume=True)) == (2400, 240)
    assert metric(20, tmp_path, replace(TUNE, resume=True)) == "bleu"


def metric(validated: int, folder: Path = Path("nowhere"), request: TrainRequest = TUNE) -> str:
    config = apply_settings(load_recipe(request.recipe), request.settings)
    return tuning_settings(request, config.train, folder, 1_000, validated).best_metric


def test_bleu_selects_a_tuned_model_if_enough_pairs_are_decoded() -> None:
    assert (metric(99), metric(100)) == ("loss", "bleu")
    for given in ("train.validate_bleu=50", "train.validate_bleu=0", "train.best_metric=loss"):
        assert metric(1_000, request=replace(TUNE, settings=[given])) == "loss"
    assert metric(1_000, request=replace(TUNE, settings=["train.max_steps=70"])) == "bleu"
    assert metric(1_000, request=replace(TUNE, recipe="tiny")) == load_recipe("tiny").train.best_metric
