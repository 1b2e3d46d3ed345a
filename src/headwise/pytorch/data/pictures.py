"""Labelled images: a folder with one subfolder per label, or a table of files.

Files are read when their batch comes, so a dataset may be larger than memory. Augmentation is a function of (seed,
epoch, row), so a resumed stream is identical. Preprocessing is in `image.py`, training in
`headwise.pytorch.tasks.pictures`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.core.batches import UnpaddedBatch
from headwise.errors import UserError
from headwise.pytorch.data.image import Preprocessing, check_image, open_image, pixels
from headwise.pytorch.data.stream import LazyDataset
from headwise.text.files.labelled_texts import check_class, count_classes, read_labelled
from headwise.text.files.split import ValidationSize, choose_pairs
from headwise.text.prepared.batch_planning import Rows

if TYPE_CHECKING:
    from PIL.Image import Image

FORMAT = "give a folder with one subfolder of images per label, or a .tsv file with 'file TAB label' on every line"
UNREAD = (".heic", ".heif", ".avif", ".jfif", ".jpe", ".jp2", ".pnm", ".tga", ".svg", ".psd", ".dng", ".cr2", ".nef")
PARTS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass(frozen=True)
class Picture:
    """An image file, where it was listed, and its label."""

    path: Path
    location: str
    label: str


def read_pictures(paths: Sequence[str]) -> list[Picture]:
    """The images of folders, in the order of their names, and of tables.

    Raises:
        UserError: a folder, table or image is missing, invalid or empty.
    """
    sources = (_read_folder(path) if Path(path).is_dir() else _read_table(path) for path in paths)
    pictures = [picture for source in sources for picture in source]
    for picture in pictures:
        check_image(picture.path, picture.location)
    return pictures


def _read_folder(path: str) -> list[Picture]:
    top = sorted(Path(path).iterdir())
    folders = [folder for folder in top if folder.is_dir()]
    names = [folder.name for folder in folders]
    if len(names) > 1 and all(name.lower() in PARTS for name in names):
        raise UserError(f"{path}: has the folders {', '.join(names)}, which are no labels; name one of them")
    for file in (file for file in top if file.suffix.lower() in (*SUFFIXES, *UNREAD) and file.is_file()):
        raise UserError(f"{file}: is in no folder of a label; {FORMAT}")
    files = [(folder.name, file) for folder in folders for file in sorted(folder.rglob("*"))]
    for _, file in (one for one in files if one[1].suffix.lower() in UNREAD):
        raise UserError(f"{file}: is not of a type that is read ({', '.join(SUFFIXES)}); convert or remove it")
    pictures = [Picture(file, str(file), label) for label, file in files if file.suffix.lower() in SUFFIXES]
    if not pictures:
        raise UserError(f"{path}: no images in subfolders named after labels; {FORMAT}")
    return pictures


def _read_table(path: str) -> list[Picture]:
    if not path.endswith(".tsv"):
        raise UserError(f"{path}: not a folder or table of labelled images; {FORMAT}")
    base, rows = Path(path).parent, enumerate(read_labelled(path), start=1)
    pictures = [Picture(base / file, f"{path}: line {n}", label) for n, (file, label) in rows]
    for picture in pictures:
        if not picture.path.is_file():
            raise UserError(
                f"{picture.location}: no such file: {picture.path}; paths are relative to the folder of the table"
            )
    return pictures


def count_picture_labels(pictures: Sequence[Picture], origin: str) -> dict[str, int]:
    """The sorted labels with their counts; `UserError` if there is only one."""
    return count_classes((picture.label for picture in pictures), origin, "image")


def check_picture_labels(pictures: Sequence[Picture], labels: Sequence[str]) -> None:
    """`UserError` for the first label that is not in `labels`."""
    for picture in pictures:
        check_class(picture.label, labels, picture.location)


def pictures_key(pictures: Sequence[Picture]) -> str:
    """A hash of the names, labels and sizes of the files."""
    rows = (f"{one.path.parent.name}/{one.path.name}\t{one.label}\t{one.path.stat().st_size}\n" for one in pictures)
    return sha256("".join(rows).encode()).hexdigest()[:16]


def hold_out_pictures(
    pictures: Sequence[Picture], size: ValidationSize, stratified: bool = True
) -> tuple[list[Picture], list[Picture], dict[str, int]]:
    """Split off images for validation, the same ones every time: training images, validation images, and counts.

    Images with the same pixels, whatever their files and formats, stay on one side, and so do all rows of a file. If
    there are too many of them, single ones are taken and the others are dropped; see `headwise.text.files.split`.

    Args:
        stratified: labels have the same shares on both sides.
    """
    first = list({one.path: one for one in pictures}.values())
    keys = np.array([_pixel_key(one) for one in first], np.uint64)
    names = {one.label: 0 for one in first}
    numbers = {name: number for number, name in enumerate(names)} if stratified else names
    labels = np.array([numbers[one.label] for one in first], np.int64)
    taken, dropped = choose_pairs(keys, keys, labels, size.of(len(first), "image"))
    if (taken | dropped).all():
        raise UserError(f"{size}: every image equals a validation image, so none is left to train on; hold out fewer")
    valid = {one.path for one, chosen in zip(first, taken, strict=True) if chosen}
    neither = {one.path for one, left_out in zip(first, dropped, strict=True) if left_out}
    train = [one for one in pictures if one.path not in valid | neither]
    return train, [one for one in pictures if one.path in valid], {"taken": len(valid), "dropped": len(neither)}


def _pixel_key(picture: Picture) -> int:
    """A hash of the size and the pixels of an image, never `EMPTY`."""
    image = open_image(picture.path, picture.location)
    content = sha256(repr(image.size).encode() + image.tobytes())
    return int.from_bytes(content.digest()[:8], "little") | 1


@dataclass(frozen=True)
class Augmentation:
    """Random changes of training images."""

    flip: bool = False  # mirror left and right with probability 0.5
    shift: float = 0.0  # by up to this share of a side, in any direction; the uncovered part is black

    def __call__(self, image: "Image", generator: np.random.Generator) -> "Image":
        """The augmented image, of the same size."""
        from PIL import ImageOps

        if self.flip and generator.random() < 0.5:
            image = ImageOps.mirror(image)
        most = [round(self.shift * side) for side in image.size]
        x, y = (int(generator.integers(-n, n + 1)) for n in most)
        return image.crop((x, y, x + image.width, y + image.height)) if x or y else image


def augmented_pixels(
    picture: Picture, preprocessing: Preprocessing, augmentation: Augmentation, seed: tuple[int, int, int] | None
) -> Float[Tensor, "3 height width"]:
    """The pixels of an image, augmented by `seed`; None = no augmentation."""
    image = open_image(picture.path, picture.location)
    return pixels(image if seed is None else augmentation(image, np.random.default_rng(seed)), preprocessing)


@dataclass(frozen=True)
class PictureBatch(UnpaddedBatch):
    """Images of one size, and the class of each."""

    pixels: Float[Tensor, "batch channels height width"]
    labels: Int[Tensor, " batch"]
    n_patches: int  # of an image

    @property
    def n_targets(self) -> int:
        return len(self.labels)

    @property
    def n_tokens(self) -> int:
        return len(self.labels) * self.n_patches

    @property
    def extent(self) -> str:
        rows, _, height, width = self.pixels.shape
        return f"{rows} images of {height} x {width}"


@dataclass(frozen=True)
class PictureDataset(LazyDataset[PictureBatch]):
    """Labelled images for a vision Transformer."""

    pictures: Sequence[Picture]
    labels: tuple[str, ...]  # class i is labels[i]
    preprocessing: Preprocessing
    n_patches: int  # of each image
    augmentation: Augmentation = Augmentation()

    def __len__(self) -> int:
        return len(self.pictures)

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> PictureBatch:
        images = [self._pixels(int(row), None if epoch < 0 else (seed, epoch, int(row))) for row in rows]
        classes = [self.labels.index(self.pictures[int(row)].label) for row in rows]
        return PictureBatch(torch.stack(images), torch.tensor(classes), self.n_patches)

    def _pixels(self, row: int, augmentation_seed: tuple[int, int, int] | None) -> Float[Tensor, "3 height width"]:
        return augmented_pixels(self.pictures[row], self.preprocessing, self.augmentation, augmentation_seed)
