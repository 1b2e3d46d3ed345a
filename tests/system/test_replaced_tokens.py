"""An ELECTRA as its users meet it: `train --task rtd`, from scratch, and labels learnt from what comes out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_at
from safetensors.torch import load_file

import sightline

Cli = Callable[..., Any]
SHAPE = ["model.d_model=32", "model.d_ff=48", "model.n_heads=4", "model.n_encoder_layers=1", "model.dropout=0.1"]
QUICK = ["train.max_steps=40", "train.validate_every=20", "train.checkpoint_every=10", "train.log_every=10",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.tokens_per_batch=256", "train.threads=1",
         "data.block_length=16"]  # fmt: skip


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "train.txt").write_text("abcdefghijklmnopqrstuvwxyz\n" * 40, encoding="utf-8")
    (folder / "valid.txt").write_text("abcdefghijklmnopqrstuvwxyz\n" * 4, encoding="utf-8")
    files = ["--train", str(folder / "train.txt"), "--valid", str(folder / "valid.txt")]
    settings = ["--set", "data.subword=characters", *SHAPE, *QUICK]
    return ["train", "--recipe", "electra", *files, "--device", "cpu", *settings]


@pytest.fixture(scope="module")
def trained(command: list[str], cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "electra"
    ran = cli(*command, "--out", out)
    assert ran.code == 0, ran.err
    return out


def records(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]


def test_it_learns_and_transformers_reads_it(trained: Path) -> None:
    first, last = records(trained, "validation.jsonl")
    assert last["loss"] == pytest.approx(last["generator"] + 50 * last["discriminator"])
    assert last["generator"] < first["generator"] < 3.5 and 0.8 < last["accuracy"] <= 1
    assert last["discriminator"] < 0.45
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(trained).eval()
    cut = transformers.AutoTokenizer.from_pretrained(trained)
    ids = torch.tensor([cut("abcxefg")["input_ids"]])
    own = sightline.load(trained, "cpu")
    with torch.no_grad():
        torch.testing.assert_close(own.network(ids), theirs(ids).logits, atol=1e-5, rtol=0)
    card = (trained / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A replaced-token model made with Sightline")


def test_labels_are_learnt_from_it(trained: Path, cli: Cli, tmp_path: Path) -> None:
    lines = "".join(f"{text}\t{label}\n" for text, label in (("abc", "up"), ("cba", "down")) * 10)
    (tmp_path / "a.tsv").write_text(lines, encoding="utf-8")
    files = ["--train", tmp_path / "a.tsv", "--valid", tmp_path / "a.tsv", "--out", tmp_path / "out"]
    settings = ["--set", "train.max_steps=2", "train.validate_every=2", "train.threads=1"]
    ran = cli("train", "--task", "classify", "--init", trained, *files, *settings)
    assert ran.code == 0, ran.err
    before, after = load_file(trained / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert {key for key in before if key.startswith("electra.")} == {key for key in after if key.startswith("electra.")}


@pytest.mark.slow
def test_killed_and_resumed_it_is_the_same_run(trained: Path, command: list[str], cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "model"
    killed_at(out / "checkpoints" / "step-00000010", [*command, "--out", out])
    ran = cli(*command, "--out", out, "--resume")
    assert ran.code == 0 and "resuming after step " in ran.err, ran.err
    losses = [[(row["step"], row["loss"]) for row in records(path, "metrics.jsonl")] for path in (out, trained)]
    assert losses[0] == losses[1]
    assert (out / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            ["--set", "model.norm=rms"],
            "a replaced-token model is kept in the layout of electra, and electra cannot have ",
        ),
        (
            ["--set", "model.d_model=36", "model.n_heads=9"],
            "model.d_model = 36: a generator a quarter as wide has 2 heads",
        ),
        (["--set", "data.block_length=2"], "data.block_length = 2: 2 tokens of a block are marks; raise it"),
        (["--init", "x"], "--init is for --task "),
    ],
)
def test_what_does_not_go(cli: Cli, command: list[str], tmp_path: Path, more: list[str], expected: str) -> None:
    assert expected in cli(*command, "--out", tmp_path / "out", *more).complaint
