"""Pictures with labels: a folder with one folder for each label, or a table of files.

Files are opened when their batch comes, so that a set may be larger than memory. What is changed in a picture for
training (`Augmentation`) is drawn from (seed, epoch, its number): a stream goes on where it was, bit for bit. Not here:
what a file becomes (`image.py`), and what is learnt from it (`headwise.tasks.pictures`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.data.batch import UnpaddedBatch
from headwise.data.batch_planning import Rows
from headwise.data.image import Preprocessing, check_image, open_image, pixels
from headwise.data.labelled_texts import read_labelled
from headwise.data.stream import LazyDataset
from headwise.errors import UserError, unknown

if TYPE_CHECKING:
    from PIL.Image import Image

FORMAT = "give a folder with a folder of pictures for each label, or a .tsv of 'file TAB label' on every line"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass(frozen=True)
class Picture:
    """A file, where it was named, and its label."""

    path: Path
    location: str
    label: str


def read_pictures(paths: Sequence[str]) -> list[Picture]:
    """The pictures of folders and tables; those of a folder in the order of their names.

    Raises:
        UserError: a source or a picture is missing, of another kind, or none at all.
    """
    found = [picture for path in paths for picture in (_of_folder(path) if Path(path).is_dir() else _of_table(path))]
    for picture in found:
        check_image(picture.path, picture.location)
    return found


def _of_folder(path: str) -> list[Picture]:
    folders = sorted(folder for folder in Path(path).iterdir() if folder.is_dir())
    found = [
        Picture(file, str(file), folder.name)
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise UserError(f"{path}: no pictures in folders named by their labels; {FORMAT}")
    return found


def _of_table(path: str) -> list[Picture]:
    if not path.endswith(".tsv"):
        raise UserError(f"{path}: no pictures with labels; {FORMAT}")
    base, rows = Path(path).parent, enumerate(read_labelled(path), start=1)
    found = [Picture(base / file, f"{path}: line {n}", label) for n, (file, label) in rows]
    for picture in found:
        if not picture.path.is_file():
            raise UserError(f"{picture.location}: no such file: {picture.path}; paths count from the table's folder")
    return found


def count_picture_labels(pictures: Sequence[Picture], origin: str) -> dict[str, int]:
    """The labels there are, sorted, and how many pictures have each; two labels at least."""
    counts = Counter(picture.label for picture in pictures)
    if len(counts) < 2:
        raise UserError(f"{origin}: every picture has the label '{next(iter(counts))}'; a classifier needs two labels")
    return dict(sorted(counts.items()))


def check_picture_labels(pictures: Sequence[Picture], labels: Sequence[str]) -> None:
    """`UserError` with the place of the first label that is not among `labels`."""
    for picture in pictures:
        if picture.label not in labels:
            what = unknown("label", picture.label, labels)
            raise UserError(f"{picture.location}: {what}; training has no such one")


def pictures_key(pictures: Sequence[Picture]) -> str:
    """What tells these pictures from others: names, labels and sizes of the files."""
    rows = (f"{one.path.parent.name}/{one.path.name}\t{one.label}\t{one.path.stat().st_size}\n" for one in pictures)
    return sha256("".join(rows).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Augmentation:
    """What may be changed in a picture that is trained on: it still shows the same."""

    flip: bool = False  # left and right, every other time
    shift: float = 0.0  # by up to this share of a side, any way; what is uncovered is black

    def __call__(self, image: "Image", generator: np.random.Generator) -> "Image":
        """Another picture of the same size."""
        from PIL import ImageOps

        if self.flip and generator.random() < 0.5:
            image = ImageOps.mirror(image)
        most = [round(self.shift * side) for side in image.size]
        x, y = (int(generator.integers(-n, n + 1)) for n in most)
        return image.crop((x, y, x + image.width, y + image.height)) if x or y else image


def augmented_pixels(
    picture: Picture, how: Preprocessing, augmentation: Augmentation, drawn: tuple[int, int, int] | None
) -> Float[Tensor, "3 height width"]:
    """A picture as a network reads it, changed by what follows from `drawn`; None = as it is."""
    image = open_image(picture.path, picture.location)
    return pixels(image if drawn is None else augmentation(image, np.random.default_rng(drawn)), how)


@dataclass(frozen=True)
class PictureBatch(UnpaddedBatch):
    """Pictures of one size, and the class of each."""

    pixels: Float[Tensor, "batch channels height width"]
    labels: Int[Tensor, " batch"]
    n_patches: int  # of a picture

    @property
    def n_targets(self) -> int:
        """Pictures: what the loss is a sum over."""
        return len(self.labels)

    @property
    def n_tokens(self) -> int:
        """Patches: what speed is counted in."""
        return len(self.labels) * self.n_patches

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        rows, _, height, width = self.pixels.shape
        return f"{rows} pictures of {height} x {width}"


@dataclass(frozen=True)
class PictureDataset(LazyDataset[PictureBatch]):
    """Pictures as a network reads them."""

    pictures: Sequence[Picture]
    labels: tuple[str, ...]  # class i is labels[i]
    how: Preprocessing
    n_patches: int  # that a network makes of each
    augmentation: Augmentation = Augmentation()

    def __len__(self) -> int:
        return len(self.pictures)

    def load(self, rows: Rows, seed: int = 0, epoch: int = -1) -> PictureBatch:
        read = [self._pixels(int(row), None if epoch < 0 else (seed, epoch, int(row))) for row in rows]
        classes = [self.labels.index(self.pictures[int(row)].label) for row in rows]
        return PictureBatch(torch.stack(read), torch.tensor(classes), self.n_patches)

    def _pixels(self, row: int, drawn: tuple[int, int, int] | None) -> Float[Tensor, "3 height width"]:
        return augmented_pixels(self.pictures[row], self.how, self.augmentation, drawn)
