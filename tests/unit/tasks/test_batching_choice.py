"""`train.batching = "auto"`: at random where nothing is computed for padding, and as a run began when it goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from sightline.checkpoint.trained import write_settings
from sightline.config import RunConfig, apply_settings
from sightline.native.library import training_library
from sightline.tasks.job import TrainRequest
from sightline.tasks.starting import continuing
from sightline.tasks.translation import batching
from sightline.training.packed import LONGEST

REQUEST = TrainRequest("tiny", [], [], "out", device="cpu")
needs_library = pytest.mark.skipif(training_library() is None, reason="the compiled library is not there")


def choice(*settings: str, request: TrainRequest = REQUEST, folder: Path = Path("nowhere")) -> str:
    return batching(request, apply_settings(RunConfig(), settings), folder)


@needs_library
def test_a_transformer_on_a_cpu_reads_pairs_at_random() -> None:
    assert choice() == "random"
    assert choice("model.d_model=96", "model.n_heads=3") == "random"


@pytest.mark.parametrize(
    "setting",
    [
        "model.n_heads=128",  # heads of width 4
        "model.architecture=recurrent",
        "train.compile=true",
        "train.precision=bf16",
        "train.alignment_weight=0.1",
        f"data.max_length={LONGEST + 1}",
        "train.batching=bucketed",
    ],
)
def test_what_is_padded_is_bucketed(setting: str) -> None:
    assert choice(setting) == "bucketed"


def test_without_the_library_everything_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.training.packed.training_library", lambda: None)
    assert choice() == "bucketed"
    assert choice("train.batching=random") == "random"


def test_a_resumed_run_goes_on_as_it_began(tmp_path: Path) -> None:
    """Whatever this machine would choose: the place in the data means nothing in another plan."""
    for began in ("bucketed", "random"):
        folder = tmp_path / began
        folder.mkdir()
        config = apply_settings(RunConfig(), [f"train.batching={began}"])
        write_settings(folder, config, None, {"corpus": {}})
        assert choice(request=replace(REQUEST, resume=True), folder=folder) == began


def test_a_new_run_from_a_model_chooses_anew() -> None:
    start = apply_settings(RunConfig(), ["train.batching=bucketed", "train.max_steps=7"])
    own = continuing(replace(REQUEST, recipe="", init="model"), start)
    assert (own.train.batching, own.train.max_steps) == ("auto", 7)
