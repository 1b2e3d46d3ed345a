"""Fine-tuning a captioning model as users do: `headwise train --task caption --init FOLDER`.

The model is tiny and random. It learns captions of three colours by heart, which shows that everything trains.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import killed_and_resumed, records
from safetensors.torch import load_file, save_file
from tiny_families import CAPTIONS, write_tiny

Image = pytest.importorskip("PIL.Image")

Cli = Callable[..., Any]
COLOURS = {"red": (220, 30, 20), "green": (20, 200, 40), "blue": (10, 40, 230)}
QUICK = ["train.max_steps=120", "train.validate_every=60", "train.checkpoint_every=20", "train.log_every=10",
         "train.learning_rate=0.01", "train.warmup_steps=5", "train.tokens_per_batch=12",
         "train.threads=1"]  # fmt: skip
POOLER = "encoder.pooler.dense.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioning model with a pooler, three images, and the file that lists them, one of them twice; read only."""
    folder = tmp_path_factory.mktemp("captions")
    write_tiny(
        folder / "model", "captions", {"decoder": {**CAPTIONS["decoder"], "resid_pdrop": 0.0, "embd_pdrop": 0.0}}
    )
    weights = folder / "model" / "model.safetensors"
    save_file({**load_file(weights), POOLER: torch.ones(16, 16)}, weights, {"format": "pt"})
    (folder / "model" / "preprocessor_config.json").write_text('{"size": 8, "do_resize": true}')
    for name, colour in COLOURS.items():
        Image.new("RGB", (20, 12), colour).save(folder / f"{name}.png")
    lines = [f"{name}.png\tA {name} field.\n" for name in COLOURS]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "held.tsv").write_text(f"red.png\tSomething else.\n{''.join(lines)}", encoding="utf-8")
    return folder


def command(folder: Path, *more: str) -> list[str]:
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "held.tsv")]
    start = ["train", "--task", "caption", "--init", str(folder / "model"), *files, "--device", "cpu"]
    return [*start, "--set", *QUICK, *more]


@pytest.mark.thorough
def test_training_keeps_the_layout(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = cli(*command(folder), "--out", out)
    assert ran.code == 0, ran.err
    assert "training on 3 images with 3 captions, validating on 3 images with 4 captions" in ran.err
    validated = records(out, "validation.jsonl")
    assert [row["step"] for row in validated] == [0, 60, 120]
    assert validated[0]["bleu"] < 5 and validated[-1]["bleu"] == pytest.approx(100)
    name, caption = (folder / "held.tsv").read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert (validated[-1]["sample"]["source"], validated[-1]["sample"]["reference"]) == (Path(name).name, caption)
    before, after = (load_file(path / "model.safetensors") for path in (folder / "model", out))
    assert {key: value.shape for key, value in before.items()} == {key: value.shape for key, value in after.items()}
    assert [key for key in before if torch.equal(before[key], after[key])] == [POOLER]
    for file in ("config.json", "tokenizer.json", "generation_config.json", "preprocessor_config.json"):
        assert json.loads((out / file).read_text()) == json.loads((folder / "model" / file).read_text())
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "# A captioning model" in card and "train.tsv: 3 images with 3 captions" in card
    pictures = [folder / f"{name}.png" for name in COLOURS]
    assert cli("caption", out, *pictures).out.splitlines() == [f"A {name} field." for name in COLOURS]
    report = json.loads(cli("evaluate", out, "--source", folder / "held.tsv", "--format", "json").out)
    assert (report["BLEU"]["score"], report["pictures"], report["captions"]) == (pytest.approx(100), 3, 4)
    assert "3 pictures, 4 captions" in cli("evaluate", out, "--source", folder / "held.tsv").out


@pytest.mark.thorough
def test_a_killed_run_is_resumed_exactly(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """With images that are shifted at random in every epoch."""
    constant = command(folder, "train.schedule=constant", "data.shift=0.2", "data.flip=true", "train.max_steps=60")
    assert cli(*constant, "--out", tmp_path / "whole").code == 0
    killed_and_resumed(cli, constant, 20, tmp_path / "parts", tmp_path / "whole")
    still = command(folder, "train.schedule=constant", "train.max_steps=60")
    assert cli(*still, "--out", tmp_path / "still").code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "still")]
    assert weights[0] != weights[1]


@pytest.mark.thorough
def test_adapters(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Adapters on both halves; every command loads them, and export merges them."""
    more = ["train.lora_rank=4", "train.lora_layers=q_proj,v_proj,up_proj", "train.learning_rate=0.05"]
    ran = cli(*command(folder, *more), "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "adapters: rank 4" in ran.err
    picture = folder / "blue.png"
    captioned = cli("caption", tmp_path / "out", picture)
    assert captioned.code == 0 and captioned.out != cli("caption", folder / "model", picture).out, captioned.err
    ran = cli("export", tmp_path / "out", "--to", "hf", tmp_path / "whole")
    assert ran.code == 0, ran.err
    assert cli("caption", tmp_path / "whole", picture).out == captioned.out


def test_images_are_held_out_with_all_their_captions(cli: Cli, folder: Path, tmp_path: Path) -> None:
    asked = command(folder, "train.max_steps=1")
    asked[asked.index("--train") + 1] = str(folder / "held.tsv")
    asked[asked.index("--valid") + 1] = "1pairs"
    ran = cli(*asked, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "training on 2 images with" in ran.err and "validating on 1 images with" in ran.err
    asked[asked.index("--valid") + 1] = "3pairs"
    assert (
        "the training files hold 3 images; leave some to train on" in cli(*asked, "--out", tmp_path / "two").complaint
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("red.png\ta\nmissing.png\tb\n", "train.tsv: line 2: {}/missing.png: no such file"),
        ("red.png\ta\nred.png b\n", "train.tsv: line 2 has no tab; write 'file TAB caption' on every line"),
        ("red.png\ta\tb\n", "train.tsv: line 1 has 2 tabs"),
        ("red.png\t \n", "train.tsv: line 1 has an empty caption; remove it"),
        ("\ta\n", "train.tsv: line 1 names no file"),
        ("broken.png\ta\n", "train.tsv: line 1: {}/broken.png: is not a readable image file"),
        (f"red.png\t{'a' * 60}\n", "train.tsv: line 1: the caption has 60 tokens, but the model writes at most 59"),
    ],
)
def test_files_that_cannot_be_used(cli: Cli, folder: Path, tmp_path: Path, lines: str, expected: str) -> None:
    (tmp_path / "red.png").write_bytes((folder / "red.png").read_bytes())
    (tmp_path / "broken.png").write_text("no picture")
    (tmp_path / "train.tsv").write_text(lines)
    asked = command(folder)
    asked[asked.index("--train") + 1] = str(tmp_path / "train.tsv")
    assert expected.format(tmp_path) in cli(*asked, "--out", tmp_path / "out").complaint
    assert not (tmp_path / "out").exists()


def test_unsupported_options_give_one_line(cli: Cli, folder: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "vit", "vit")
    for more, expected in [
        (["--init", tmp_path / "vit"], "is a vit model that reads pictures; this task needs a ViT or DeiT with a"),
        (["--target-language", "de"], "--source-language and --target-language do not apply to captions"),
        (["--task", "label"], "looks at a picture and writes a caption; this task needs an image encoder"),
        (["--set", "data.max_length=9"], "data.max_length = 9 is not used by model.task = caption"),
    ]:
        assert expected in cli(*command(folder), "--out", tmp_path / "out", *more).complaint


# --- From scratch, and from two folders

BEGUN = [
    *QUICK, "model.image_size=8", "model.patch_size=4", "model.d_model=16", "model.d_ff=32", "model.dropout=0.0",
    "data.vocab_size=280", "train.label_smoothing=0.0", "data.shift=0",
]  # fmt: skip


def from_nothing(folder: Path, *more: str) -> list[str]:
    files = ["--train", str(folder / "train.tsv"), "--valid", str(folder / "held.tsv")]
    return ["train", "--recipe", "caption", *files, "--device", "cpu", "--set", *BEGUN, *more]


@pytest.mark.thorough
def test_a_captioner_trains_from_scratch(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = cli(*from_nothing(folder), "--out", out)
    assert ran.code == 0, ran.err
    assert "training a tokenizer: bpe with 280 tokens" in ran.err
    assert [row["step"] for row in records(out, "validation.jsonl")] == [60, 120]
    assert records(out, "validation.jsonl")[-1]["bleu"] == pytest.approx(100)
    captioned = cli("caption", out, *(folder / f"{name}.png" for name in COLOURS))
    assert captioned.out.splitlines() == [f"A {name} field." for name in COLOURS]
    start, after = (load_file(path / "model.safetensors") for path in (out / "vit-gpt2-begun", out))
    keys = [key for key in start if key.endswith(("position_embeddings", "cls_token"))]
    assert len(keys) == 2 and all(0.01 < start[key].std() < 0.03 for key in keys)  # not all the same
    assert {key for key in start if torch.equal(start[key], after[key])} == {POOLER, POOLER.replace("weight", "bias")}
    refused = cli(*from_nothing(folder, "model.positions=rotary"), "--out", tmp_path / "two")
    assert "model.positions = rotary: patches have learned positions" in refused.complaint
    assert not (tmp_path / "two").exists()


@pytest.mark.thorough
def test_a_captioner_from_scratch_is_resumed_exactly(cli: Cli, folder: Path, tmp_path: Path) -> None:
    constant = from_nothing(folder, "train.schedule=constant", "train.max_steps=60", "model.dropout=0.1")
    assert cli(*constant, "--out", tmp_path / "whole").code == 0
    killed_and_resumed(cli, constant, 20, tmp_path / "parts", tmp_path / "whole")


def test_two_folders_are_joined_and_trained(cli: Cli, folder: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "vit", "vit")
    write_tiny(tmp_path / "gpt2", "gpt2")
    joined = tmp_path / "joined"
    ran = cli("join", tmp_path / "vit", tmp_path / "gpt2", joined)
    assert ran.out == f"{joined}: a captioner, whose attention to a picture is random until it is trained\n", ran.err
    asked = [str(joined) if word == str(folder / "model") else word for word in command(folder, "train.max_steps=60")]
    ran = cli(*asked, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    rows = records(tmp_path / "out", "validation.jsonl")
    assert rows[-1]["loss"] < rows[0]["loss"] - 1


def test_join_errors(cli: Cli, folder: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "vit", "vit")
    write_tiny(tmp_path / "gpt2", "gpt2")
    write_tiny(tmp_path / "endless", "gpt2", {"eos_token_id": None})
    for encoder, decoder, expected in [
        ("gpt2", "gpt2", "gpt2: the encoder must be a folder of vit or deit"),
        ("vit", "vit", "vit: the decoder must be a folder of gpt2"),
        ("vit", "endless", "endless: config.json has no eos_token_id, which ends captions"),
    ]:
        assert expected in cli("join", tmp_path / encoder, tmp_path / decoder, tmp_path / "out").complaint
        assert not (tmp_path / "out").exists()
    assert "exists already; name another one" in cli("join", tmp_path / "vit", tmp_path / "gpt2", folder).complaint
