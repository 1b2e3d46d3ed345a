"""Image files to what a vision Transformer sees: resized, cropped, scaled and normalised pixels.

How is in the model's preprocessor_config.json. Not here: patches, which are the network's affair.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.data.corpus import unreadable
from headwise.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

INSTALL = "pip install 'headwise[vision]'"
BILINEAR = 2  # Pillow's number, which these files use


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image; the defaults are ViT's."""

    size: tuple[int, int] | int | None = (224, 224)  # height and width, or the shorter edge; None = as it is
    resample: int = BILINEAR
    crop: tuple[int, int] | None = None  # height and width, out of the middle
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)


def preprocessing_from_hf(settings: Mapping[str, Any]) -> Preprocessing:
    """What a preprocessor_config.json says, in its older spellings, too.

    Raises:
        UserError: a size that is not understood.
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


def read_image(path: str | Path, how: Preprocessing | None = None) -> Float[Tensor, "3 height width"]:
    """The pixels of an image file; errors as of `open_image`."""
    return pixels(open_image(path), how or Preprocessing())


def open_image(path: str | Path, location: str = "") -> "Image":
    """The picture in a file, red, green, blue, as the camera was held.

    Raises:
        UserError: there is no such file, it is no image, or Pillow is not installed; `location` says who named it.
    """
    with _open_image_file(path, location) as file:
        from PIL import ImageOps

        return ImageOps.exif_transpose(file).convert("RGB")


def check_image(path: str | Path, location: str = "") -> None:
    """`UserError` where the file does not begin as an image does; the rest is not read."""
    with _open_image_file(path, location):
        pass


@contextmanager
def _open_image_file(path: str | Path, location: str) -> Iterator["Image"]:
    said = str(path) if location in ("", str(path)) else f"{location}: {path}"
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UserError(f"{said}: reading images needs Pillow: {INSTALL}") from None
    try:
        with Image.open(path) as file:
            yield file
    except UnidentifiedImageError:
        raise UserError(f"{said}: is no image file that can be read, such as PNG or JPEG") from None
    except OSError as error:
        raise unreadable(said, error) from error


def pixels(image: "Image", how: Preprocessing) -> Float[Tensor, "3 height width"]:
    """The pixels of an RGB image, as a network wants them; resized by Pillow, in whole numbers from 0 to 255."""
    if how.size is not None:
        height, width = how.size if isinstance(how.size, tuple) else _by_shorter_edge(image, how.size)
        image = image.resize((width, height), how.resample)
    if how.crop:
        height, width = how.crop
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1) * how.scale
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (how.mean, how.std))
    return (x - mean) / std


def _by_shorter_edge(image: "Image", edge: int) -> tuple[int, int]:
    shorter = min(image.size)
    return int(image.height * edge / shorter), int(image.width * edge / shorter)
