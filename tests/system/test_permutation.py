"""An XLNet as its users meet it: `train --task plm`, from scratch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_at

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
    return ["train", "--recipe", "xlnet", *files, "--device", "cpu", *settings]


@pytest.fixture(scope="module")
def trained(command: list[str], cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "xlnet"
    ran = cli(*command, "--out", out)
    assert ran.code == 0, ran.err
    return out


def records(out: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]


def test_it_learns_and_transformers_reads_it(trained: Path, cli: Cli) -> None:
    first, last = records(trained, "validation.jsonl")
    assert last["loss"] < first["loss"] < 3.5
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(trained).eval()
    cut = transformers.AutoTokenizer.from_pretrained(trained)
    ids = torch.tensor([cut("abc<mask>efg")["input_ids"]])
    own = sightline.load(trained, "cpu")
    assert type(theirs).__name__ == "XLNetLMHeadModel" and ids[0].tolist() == own.tokenizer.encode("abc<mask>efg")
    assert (ids[0, 3], ids[0, -2], ids[0, -1]) == (cut.mask_token_id, cut.sep_token_id, cut.cls_token_id)
    with torch.no_grad():
        torch.testing.assert_close(own.network(ids), theirs(ids).logits, atol=1e-5, rtol=0)
    assert len(cli("fill", trained, "abc<mask>efg").out.splitlines()) == 5
    assert cli("generate", trained, "abc").code == 0
    card = (trained / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# A permutation language model made with Sightline")


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
        (["--set", "model.norm=rms"], "model.norm = rms: an XLNet has norm = layer; leave it out"),
        (["--set", "model.positions=learned"], "model.positions = learned: an XLNet has positions = relative"),
        (["--set", "data.block_length=2"], "data.block_length = 2: 2 tokens of a block are marks; raise it"),
        (["--init", "x"], "--init is for --task "),
    ],
)
def test_what_does_not_go(cli: Cli, command: list[str], tmp_path: Path, more: list[str], expected: str) -> None:
    assert expected in cli(*command, "--out", tmp_path / "out", *more).complaint
