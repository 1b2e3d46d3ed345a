"""Image preprocessing for a vision Transformer: resize, crop, rescale and normalize (preprocessor_config.json)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import UserError
from headwise.text.files.sources import unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL = 'pip install "headwise[vision]"'
BILINEAR = 2  # Pillow's constant, used in preprocessor_config.json


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing steps; the defaults are those of ViT."""

    size: tuple[int, int] | int | None = (224, 224)  # height and width, or the shorter edge; None = no resizing
    resample: int = BILINEAR
    crop: tuple[int, int] | None = None  # height and width of the center crop
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)


def preprocessing_from_hf(settings: Mapping[str, Any]) -> Preprocessing:
    """Read the content of a preprocessor_config.json, including older formats.

    Raises:
        UserError: the size has another format.
    """
    given = Preprocessing()
    size = _size(settings.get("size", given.size)) if settings.get("do_resize", True) else None
    crop = _size(settings.get("crop_size", size)) if settings.get("do_center_crop") else None
    normalize = settings.get("do_normalize", True)
    return Preprocessing(
        size=size,
        resample=settings.get("resample", given.resample),
        crop=(crop, crop) if isinstance(crop, int) else crop,
        scale=settings.get("rescale_factor", given.scale) if settings.get("do_rescale", True) else 1.0,
        mean=tuple(settings.get("image_mean", given.mean)) if normalize else (0.0, 0.0, 0.0),
        std=tuple(settings.get("image_std", given.std)) if normalize else (1.0, 1.0, 1.0),
    )


def _size(value: Any) -> tuple[int, int] | int | None:
    if isinstance(value, int):
        return value, value
    if isinstance(value, tuple | None):
        return value
    if set(value) == {"height", "width"}:
        return value["height"], value["width"]
    if set(value) == {"shortest_edge"}:
        return value["shortest_edge"]
    raise UserError(f"preprocessor_config.json: size {value!r} is neither height and width nor shortest_edge")


def read_image(path: str | Path, steps: Preprocessing | None = None) -> Float[Tensor, "3 height width"]:
    """The pixels of an image file; errors as `open_image`."""
    return pixels(open_image(path), steps or Preprocessing())


def open_image(path: str | Path, location: str = "") -> "Image":
    """Open an image file as RGB, rotated as its EXIF data say.

    Raises:
        UserError: the file is missing, it is not an image, or Pillow is not installed. `location` is where it is
        listed.
    """
    with _open_image_file(path, location) as file:
        from PIL import ImageOps

        return ImageOps.exif_transpose(file).convert("RGB")


def check_image(path: str | Path, location: str = "") -> None:
    """`UserError` if the header is not that of an image; the rest is not read."""
    with _open_image_file(path, location):
        pass


@contextmanager
def _open_image_file(path: str | Path, location: str) -> Iterator["Image"]:
    name = str(path) if location in ("", str(path)) else f"{location}: {path}"
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UserError(f"{name}: reading images needs Pillow: {INSTALL}") from None
    try:
        with Image.open(path) as file:
            yield file
    except UnidentifiedImageError:
        raise UserError(f"{name}: is not a readable image file, such as PNG or JPEG") from None
    except OSError as error:
        raise unreadable(name, error) from error


def pixels(image: "Image", steps: Preprocessing) -> Float[Tensor, "3 height width"]:
    """Preprocess an RGB image; Pillow resizes it, in integers from 0 to 255."""
    if steps.size is not None:
        height, width = steps.size if isinstance(steps.size, tuple) else _scale_shorter_edge(image, steps.size)
        image = image.resize((width, height), steps.resample)
    if steps.crop:
        height, width = steps.crop
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1) * steps.scale
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (steps.mean, steps.std))
    return (x - mean) / std


def _scale_shorter_edge(image: "Image", edge: int) -> tuple[int, int]:
    shorter = min(image.size)
    return int(image.height * edge / shorter), int(image.width * edge / shorter)
