"""Several corpora with weights and temperature, and general pairs mixed in: stated shares, exact resumes, one or two
processes.
"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

SETTINGS = ["model.d_model=16", "model.d_ff=32", "model.dropout=0.0", "data.vocab_size=275", "train.threads=1"]
SETTINGS += ["train.tokens_per_batch=300", "train.log_every=1", "train.checkpoint_every=3", "train.validate_every=9"]
SETTINGS += ["train.validate_bleu=0", "train.average=1", "train.precision=float32", "train.accumulate=2"]
MIXED = ["data.temperature=2", "data.weights=[1,3]", "data.mix_share=0.25"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory, task: Any) -> list[str]:
    """Of 320, 20 and 40 pairs."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, size in (("large", 320), ("small", 20), ("general", 40)):
        pairs = task(size, len(name))
        (folder / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return [str(folder / f"{name}.tsv") for name in ("large", "small", "general")]


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.thorough
def test_a_mixed_run_is_resumed_exactly(corpora: list[str], cli: Any, tmp_path: Path) -> None:
    """Resumed across the end of an epoch, and by two processes; not with another general file."""
    *own, general = corpora
    start = ["train", "--recipe", "tiny", "--train", *own, "--device", "cpu", "--valid", own[1]]
    start += ["--set", *SETTINGS, *MIXED, f"data.mix={general}"]
    whole, parted, shared = (tmp_path / name for name in ("whole", "parted", "shared"))
    ran = cli(*start, "train.max_steps=9", "--out", whole)
    assert ran.code == 0, ran.err
    assert f"pairs per epoch from {own[0]}: 194 of 320 (0.61 times)" in ran.err  # 4 to 3 x 1
    assert f"pairs per epoch from {own[1]}: 146 of 20 (7.30 times)" in ran.err
    assert f"pairs per epoch from {general}: 113 of 40 (2.83 times)" in ran.err  # a quarter
    assert cli(*start, "train.max_steps=3", "--out", parted).code == 0
    ran = cli(*start, "train.max_steps=9", "--out", parted, "--resume")
    assert ran.code == 0 and "resuming after step 3" in ran.err, ran.err
    assert losses(parted) == losses(whole)
    assert (parted / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    handler = signal.getsignal(signal.SIGINT)
    ran = cli(*start, "train.max_steps=9", "train.accumulate=1", "--out", shared, "--devices", "2")
    assert ran.code == 0, ran.err
    assert signal.getsignal(signal.SIGINT) is handler  # torch's launcher has one of its own
    assert losses(shared) == pytest.approx(losses(whole), rel=1e-3)
    alone, both = (load_file(path / "model.safetensors") for path in (whole, shared))
    assert all((both[key] - alone[key]).abs().max() < 1e-2 for key in alone)
    with open(general, "a", encoding="utf-8") as file:
        file.write("a b\ta b\n")
    refused = cli(*start, "train.max_steps=12", "--out", parted, "--resume")
    assert "the data.mix files differ from those of the run" in refused.complaint


def test_held_out_pairs_do_not_change_weights(corpora: list[str], cli: Any, tmp_path: Path) -> None:
    start = ["train", "--recipe", "tiny", "--train", *corpora[:2], "--device", "cpu", "--valid", "10%"]
    ran = cli(*start, "--set", *SETTINGS, "data.temperature=2", "train.max_steps=1", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert f"pairs per epoch from {corpora[0]}: " in ran.err and f"pairs per epoch from {corpora[1]}: " in ran.err


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            ["--set", "data.weights=[1,2,3]"],
            "data.weights = [1.0, 2.0, 3.0]: give one weight for each of the 2 corpora of --train",
        ),
        (["--set", "data.weights=[1,0]"], "data.weights = [1.0, 0.0]: each must be greater than 0"),
        (["--set", "data.temperature=0"], "data.temperature = 0.0: must be greater than 0"),
        (["--set", "data.mix=nowhere.tsv"], "nowhere.tsv: no such file"),
    ],
)
def test_errors_are_reported(corpora: list[str], cli: Any, tmp_path: Path, given: list[str], complaint: str) -> None:
    start = ["train", "--recipe", "tiny", "--train", *corpora[:2], "--device", "cpu", "--valid", corpora[1]]
    ran = cli(*start, "--set", *SETTINGS, *given, "--out", tmp_path / "out")
    assert ran.code == 2
    assert complaint in ran.complaint


def test_a_corpus_without_pairs_has_no_share(corpora: list[str], cli: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").write_text("a\t \n", encoding="utf-8")
    start = ["train", "--recipe", "tiny", "--train", corpora[0], tmp_path / "empty.tsv", "--valid", corpora[1]]
    ran = cli(*start, "--device", "cpu", "--set", *SETTINGS, "data.temperature=5", "--out", tmp_path / "out")
    assert ran.code == 2
    assert f"{tmp_path / 'empty.tsv'}: has no pairs to train on; leave it out" in ran.complaint
