"""Pixels compared with the Pillow processors of transformers, on generated images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headwise.errors import UserError
from headwise.pytorch.data.image import Preprocessing, preprocessing_from_hf, read_image

Image = pytest.importorskip("PIL.Image")

SETTINGS: dict[str, dict[str, Any]] = {
    "vit": {},
    "small": {"size": {"height": 30, "width": 20}, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.9, 0.8, 0.7]},
    "bicubic": {"size": {"height": 48, "width": 48}, "resample": 3},
    "as-is": {"do_resize": False},
    "not-normalised": {"do_normalize": False},
    "other-scale": {"rescale_factor": 1 / 127.5, "do_normalize": False},
    "not-rescaled": {"do_rescale": False},
}
DEIT = {"size": {"height": 64, "width": 64}, "do_center_crop": True, "crop_size": {"height": 51, "width": 40}}


def draw(path: Path, size: tuple[int, int] = (57, 43), mode: str = "RGB") -> Path:
    noise = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path)
    return path


def processed(kind: str, settings: dict[str, Any], path: Path) -> torch.Tensor:
    transformers = pytest.importorskip("transformers")
    process = getattr(transformers, kind)(**settings)
    with Image.open(path) as image:
        return torch.from_numpy(process(image.convert("RGB"), return_tensors="np").pixel_values[0])


@pytest.mark.parametrize("name", SETTINGS)
def test_pixels_match_vit(name: str, tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png")
    found = read_image(path, preprocessing_from_hf(SETTINGS[name]))
    wanted = processed("ViTImageProcessorPil", SETTINGS[name], path)
    torch.testing.assert_close(found, wanted.float(), atol=1e-5, rtol=1e-5)


def test_pixels_match_deit_with_center_crop(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png")
    found = read_image(path, preprocessing_from_hf({**DEIT, "resample": 3}))
    torch.testing.assert_close(found, processed("DeiTImageProcessorPil", DEIT, path).float() * 1.0, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "RGB"])
def test_every_kind_of_image_has_three_colours(mode: str, tmp_path: Path) -> None:
    assert read_image(draw(tmp_path / "a.png", mode=mode)).shape == (3, 224, 224)


def test_older_formats_of_sizes() -> None:
    assert preprocessing_from_hf({"size": 384}).size == (384, 384)
    assert preprocessing_from_hf({"size": {"shortest_edge": 256}}).size == 256
    assert preprocessing_from_hf({}) == Preprocessing()
    with pytest.raises(UserError, match="is neither height and width nor shortest_edge"):
        preprocessing_from_hf({"size": {"longest_edge": 3}})


def test_shorter_edge_keeps_the_proportions(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", (60, 40))
    assert read_image(path, Preprocessing(size=20)).shape == (3, 20, 30)
    assert read_image(path, Preprocessing(size=20, crop=(20, 10))).shape == (3, 20, 10)


def test_exif_rotation(tmp_path: Path) -> None:
    """A photograph is rotated as its EXIF data say."""
    with Image.open(draw(tmp_path / "a.png", (60, 40))) as image:
        note = image.getexif()
        note[0x0112] = 6
        image.save(tmp_path / "turned.png", exif=note)
    assert read_image(tmp_path / "turned.png", Preprocessing(size=None)).shape == (3, 60, 40)


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.png").write_text("no image")
    whole = draw(tmp_path / "whole.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    for name, message in [
        ("text.png", "text.png: is not a readable image file, such as PNG or JPEG"),
        ("half.png", "half.png: cannot be read"),
        ("nothing.png", "nothing.png: no such file"),
    ]:
        with pytest.raises(UserError, match=message):
            read_image(tmp_path / name)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(UserError, match=r'needs Pillow: pip install "headwise\[vision\]"'):
        read_image(tmp_path / "whole.png")
