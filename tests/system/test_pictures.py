"""Image classification: trained from files, used by every command, killed and resumed, with one-line errors."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killing import killed_and_resumed, records
from tiny_families import write_tiny

from headwise.errors import UserError
from headwise.pytorch.data.image import Preprocessing
from headwise.pytorch.data.pictures import Augmentation, Picture, PictureDataset, hold_out_pictures, read_pictures
from headwise.text.files.split import parse_validation_size

Cli = Callable[..., Any]
Image = pytest.importorskip("PIL.Image")

SMALL = ["model.image_size=8", "model.patch_size=4", "model.d_model=16", "model.d_ff=24", "model.n_heads=2",
         "model.n_encoder_layers=1", "train.tokens_per_batch=32", "train.max_steps=60", "train.warmup_steps=5",
         "train.validate_every=30", "train.checkpoint_every=10", "train.log_every=10",
         "train.learning_rate=0.01"]  # fmt: skip


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red, green and blue images, thirty of each, with noise; and a table of six of them."""
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    rows = []
    for channel, label in enumerate(("red", "green", "blue")):
        (folder / "all" / label).mkdir(parents=True)
        for i in range(30):
            pixels = generator.integers(0, 150, (10, 12, 3), dtype=np.uint8)
            pixels[:, :, channel] += 90
            Image.fromarray(pixels).save(folder / "all" / label / f"{i}.png")
        rows += [f"all/{label}/{i}.png\t{label}" for i in range(2)]
    (folder / "six.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(pictures: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "vit"
    ran = cli(*command(pictures, out))
    assert ran.code == 0, ran.err
    return out


def command(pictures: Path, out: Path, *more: str, train: str = "all", valid: str = "20%") -> list[str]:
    named = valid if valid.endswith("%") else str(pictures / valid)
    files = ["--train", str(pictures / train), "--valid", named, "--device", "cpu", "--out", str(out)]
    return ["train", "--recipe", "vit", *files, "--set", *SMALL, *more]


def test_every_command_for_images(trained: Path, pictures: Path, cli: Cli, tmp_path: Path) -> None:
    red = pictures / "all" / "red" / "0.png"
    assert cli("label", trained, red).out.split()[1] == "red"
    report = json.loads(cli("evaluate", trained, "--source", pictures / "six.tsv", "--format", "json").out)
    assert report["accuracy"] == 1.0 and report["texts"] == 6
    assert cli("evaluate", trained, "--source", pictures / "all").out.startswith("accuracy ")
    info = cli("info", trained).out
    assert "label, evaluate" in info and "classes        blue, green, red" in info
    assert "training data  all: 72 images" in info
    validated = records(trained, "validation.jsonl")[-1]
    assert validated["accuracy"] > 0.9 and validated["loss"] < 0.5
    assert cli("inspect", trained, red, "-o", tmp_path / "red.html").code == 0
    assert "<html" in (tmp_path / "red.html").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_run_is_resumed_exactly(trained: Path, pictures: Path, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "vit"
    killed_and_resumed(cli, command(pictures, out), 20, out, trained)


def test_other_pictures_are_another_run(trained: Path, pictures: Path, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "vit"
    shutil.copytree(trained, out)
    failed = cli(*command(pictures, out, train="six.tsv", valid="all"), "--resume").complaint
    assert "the training files differ from those of the run" in failed


def test_augmentation_follows_from_the_seed(pictures: Path) -> None:
    found = read_pictures([str(pictures / "all")])
    how, changed = Preprocessing(size=(8, 8)), Augmentation(flip=True, shift=0.25)
    of = PictureDataset(found, ("blue", "green", "red"), how, 4, changed)
    rows = np.arange(8)
    same = of.load(rows, 1, 0).pixels
    torch.testing.assert_close(of.load(rows, 1, 0).pixels, same, atol=0, rtol=0)
    assert not torch.equal(of.load(rows, 1, 1).pixels, same) and not torch.equal(of.load(rows, 2, 0).pixels, same)
    plain = PictureDataset(found, of.labels, how, 4).load(rows).pixels
    torch.testing.assert_close(of.load(rows).pixels, plain, atol=0, rtol=0)  # validation images are not augmented


def test_flipped_and_shifted() -> None:
    image = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3) + 1)
    always = np.random.default_rng(1)
    seen = {Augmentation(flip=True)(image, always).tobytes() for _ in range(20)}
    assert seen == {image.tobytes(), image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).tobytes()}
    moved = {Augmentation(shift=0.5)(image, always).getpixel((0, 0)) for _ in range(60)}
    assert moved == {(0, 0, 0), (1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12)}


def test_bad_input_gives_one_line(pictures: Path, tmp_path: Path, cli: Cli) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(pictures, bad)
    (bad / "six.tsv").write_text("all/red/0.png\tred\nall/red/99.png\tred\n")
    (bad / "other.tsv").write_text("all/red/0.png\tpink\n")
    (bad / "one.tsv").write_text("all/red/0.png\tred\nall/red/1.png\tred\n")
    (bad / "broken").mkdir()
    shutil.copytree(bad / "all", bad / "broken" / "x")
    (bad / "broken" / "x" / "red" / "3.png").write_text("no picture")
    (bad / "empty").mkdir()
    for train, valid, said in (
        ("six.tsv", "20%", "six.tsv: line 2: no such file: "),
        ("all", "other.tsv", "other.tsv: line 1: unknown label 'pink'"),
        ("one.tsv", "50%", "one.tsv: every image has the label 'red'; training needs two labels"),
        ("broken/x", "20%", "is not a readable image file, such as PNG or JPEG"),
        ("empty", "20%", "no images in subfolders named after labels"),
        ("all", "99.9%", "--valid 99.9%: the training files hold 90 images; leave some to train on"),
    ):
        assert said in cli(*command(bad, tmp_path / "out", train=train, valid=valid)).complaint
        assert not (tmp_path / "out").exists()


def test_images_of_a_folder_are_not_left_out(pictures: Path, tmp_path: Path) -> None:
    """A file of a type that is not read, one beside the folders, and parts of a data set are named."""
    folder = shutil.copytree(pictures / "all", tmp_path / "all")
    (folder / "red" / ".DS_Store").write_bytes(b"x")
    (folder / "red" / "notes.txt").write_text("x")
    assert len(read_pictures([str(folder)])) == 90
    for name, what in (
        ("red/a.HEIC", "a.HEIC: is not of a type that is read (.png, "),
        ("b.png", "b.png: is in no folder of a label; give a folder"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "red" / "0.png", folder / name)
        with pytest.raises(UserError, match=re.escape(what)):
            read_pictures([str(folder)])
        (folder / name).unlink()
    (folder / "red").rename(folder / "train")
    assert {one.label for one in read_pictures([str(folder)])} == {"blue", "green", "train"}
    for label in ("blue", "green"):
        shutil.rmtree(folder / label)
    shutil.copytree(folder / "train", folder / "valid")
    with pytest.raises(UserError, match="all: has the folders train, valid, which are no labels; name one of them"):
        read_pictures([str(folder)])


def held_out(folder: Path, size: str) -> tuple[list[Picture], list[Picture], dict[str, int]]:
    amount = parse_validation_size([size])
    assert amount
    return hold_out_pictures(read_pictures([str(folder)]), amount)


def test_held_out_images_are_stratified_and_twins_stay_together(tmp_path: Path) -> None:
    """Twins are copies, also in another format and under another label."""
    generator = np.random.default_rng(1)
    for label, count in (("common", 60), ("rare", 20)):
        (tmp_path / label).mkdir()
        for i in range(count):
            image = Image.fromarray(generator.integers(0, 255, (6, 5, 3), dtype=np.uint8))
            image.save(tmp_path / label / f"{i}.png")
            if i < 10:
                image.save(tmp_path / label / f"{i}-twin.{('png', 'bmp')[i % 2]}")
            if label == "rare" and i == 19:
                image.save(tmp_path / "common" / "moved.png")
    train, valid, counts = held_out(tmp_path, "20%")
    assert counts == {"taken": len(valid), "dropped": 101 - len(train) - len(valid)} and len(valid) == 20
    assert sorted(Counter(one.label for one in valid).items()) == [("common", 14), ("rare", 6)]
    sides = [{Image.open(one.path).convert("RGB").tobytes() for one in side} for side in (train, valid)]
    assert not sides[0] & sides[1]
    assert held_out(tmp_path, "20images") == held_out(tmp_path, "20pairs") == (train, valid, counts)


def test_twins_that_fill_a_label_are_dropped(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(10):
            shade = 9 * i if label == "b" else 0
            Image.new("RGB", (4, 4), (shade, 1, 2)).save(tmp_path / label / f"{i}.png")
    train, valid, counts = held_out(tmp_path, "20%")
    assert {one.label for one in train} == {"b"} and counts["dropped"] > 0 and len(valid) == 4


def test_a_setting_that_vit_cannot_have_is_refused(pictures: Path, tmp_path: Path, cli: Cli) -> None:
    failed = cli(*command(pictures, tmp_path / "out", "model.norm=rms")).complaint
    assert "a picture model is saved in the layout of vit, and vit cannot have norm = 'rms'" in failed
    failed = cli(*command(pictures, tmp_path / "out", "model.positions=sinusoidal")).complaint
    assert "patches have learned positions" in failed


# --- From a pretrained network


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["vit", "deit"])
def test_fine_tuning_a_pretrained_network(pictures: Path, cli: Cli, tmp_path: Path, kind: str) -> None:
    """Images are preprocessed as in its folder, and the layout is kept; its former class names are logged."""
    start, out = tmp_path / "model", tmp_path / "out"
    write_tiny(start, kind, {"id2label": {"0": "cat", "1": "dog", "2": "owl"}})
    how = {"image_mean": [0.3, 0.3, 0.3], "image_std": [0.2, 0.2, 0.2], "size": {"height": 8, "width": 8}}
    (start / "preprocessor_config.json").write_text(json.dumps(how))
    settings = [setting for setting in SMALL if setting.startswith("train.")]
    ran = cli("train", "--task", "label", "--init", start, "--train", pictures / "all", "--valid", "20%", "--out", out,
              "--device", "cpu", "--set", *settings)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "renaming the classes of" in ran.err and "cat, dog, owl become blue, green, red" in ran.err
    assert "training the head of model for 3 classes" in ran.err
    validated = records(out, "validation.jsonl")
    assert [row["step"] for row in validated] == [0, 30, 60] and validated[-1]["accuracy"] > 0.9
    assert (out / "preprocessor_config.json").read_bytes() == (start / "preprocessor_config.json").read_bytes()
    values = json.loads((out / "config.json").read_text())
    assert values["architectures"] == [{"vit": "ViT", "deit": "DeiT"}[kind] + "ForImageClassification"]
    report = json.loads(cli("evaluate", out, "--source", pictures / "six.tsv", "--format", "json").out)
    assert report["accuracy"] > 0.8
    ran = cli("train", "--init", out, "--train", pictures / "all", "--valid", "20%", "--out", tmp_path / "again",
              "--device", "cpu", "--set", *settings, "train.max_steps=1")  # fmt: skip
    assert ran.code == 0 and "training the head of out" in ran.err, ran.err


def test_labels_of_one_image_are_logged_and_other_networks_refused(pictures: Path, cli: Cli, tmp_path: Path) -> None:
    rows = (pictures / "six.tsv").read_text(encoding="utf-8") + "all/red/3.png\tviolet\n"
    (pictures / "rare.tsv").write_text(rows, encoding="utf-8")
    write_tiny(tmp_path / "vit", "vit")
    files = ["--train", pictures / "rare.tsv", "--valid", pictures / "six.tsv", "--out", tmp_path / "out"]
    ran = cli("train", "--task", "label", "--init", tmp_path / "vit", *files, "--set", "train.max_steps=1")
    assert ran.code == 0, ran.err
    assert "only one training example, which is too few: label 'violet'" in ran.err
    assert "a new head for 4 classes on vit, instead of its head (image_class)" in ran.err
    write_tiny(tmp_path / "bert", "bert")
    ran = cli("train", "--task", "label", "--init", tmp_path / "bert", *files[:4], "--out", tmp_path / "no")
    assert "this task needs an image encoder (ViT, DeiT)" in ran.complaint
