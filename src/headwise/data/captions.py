"""Pictures with captions: `file TAB caption` a line; a picture that has several captions stands on several lines.

Files are named from the folder of the table, and looked at before training. Not here: how outputs begin (`told.py`),
and what is learnt (`headwise.tasks.captioning`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from torch import Tensor

from headwise.data.conditional_generation import ConditionalDataset, SampleSeed
from headwise.data.corpus import read_lines
from headwise.data.image import Preprocessing, check_image
from headwise.data.pictures import Augmentation, Picture, augmented_pixels
from headwise.errors import UserError

FORMAT = "write 'file TAB caption' on every line"
HELD_OUT = 0  # seed of what is held out


def read_captions(paths: Sequence[str]) -> list[Picture]:
    """The captioned pictures of some tables, a line each; blanks around a caption are no part of it.

    Raises:
        UserError: a line is not as it should be, a caption is empty, or a picture is missing or none.
    """
    found = [picture for path in paths for picture in _of_table(path)]
    for picture in {picture.path: picture for picture in found}.values():
        check_image(picture.path, picture.location)
    return found


def _of_table(path: str) -> Iterator[Picture]:
    if not path.removesuffix(".gz").endswith(".tsv"):
        raise UserError(f"{path}: pictures with captions come as .tsv files; {FORMAT}")
    for number, line in enumerate(read_lines(path), start=1):
        columns, location = line.split("\t"), f"{path}: line {number}"
        if len(columns) != 2:
            found = f"{len(columns) - 1} tabs" if len(columns) > 1 else "no tab"
            raise UserError(f"{location} has {found}; {FORMAT}")
        file, caption = columns[0].strip(), columns[1].strip()
        if not (file and caption):
            raise UserError(f"{location} names no file" if caption else f"{location} has an empty caption; remove it")
        yield Picture(Path(path).parent / file, location, caption)


def captions_by_picture(pictures: Sequence[Picture]) -> dict[Path, list[str]]:
    """The captions of each picture, in their order.

    >>> [a, b] = [Picture(Path("a.png"), "", caption) for caption in ("a dog", "a brown dog")]
    >>> list(captions_by_picture([a, b]).values())
    [['a dog', 'a brown dog']]
    """
    found: dict[Path, list[str]] = {}
    for picture in pictures:
        found.setdefault(picture.path, []).append(picture.label)
    return found


def hold_out_pictures(pictures: Sequence[Picture], count: int) -> tuple[list[Picture], list[Picture]]:
    """All but `count` pictures, drawn, and those, each with all its captions."""
    paths = [*captions_by_picture(pictures)]
    taken = {paths[i] for i in np.random.default_rng(HELD_OUT).permutation(len(paths))[:count]}
    return [one for one in pictures if one.path not in taken], [one for one in pictures if one.path in taken]


@dataclass(frozen=True)
class CaptionedDataset(ConditionalDataset):
    """Pictures as a network sees them, with the ids of their captions."""

    pictures: tuple[Picture, ...]
    how: Preprocessing
    augmentation: Augmentation

    def values(self, row: int, drawn: SampleSeed | None) -> Float[Tensor, "3 height width"]:
        """The pixels of a picture, read from its file now."""
        return augmented_pixels(self.pictures[row], self.how, self.augmentation, drawn)

    @property
    def first(self) -> list[int]:
        """The first line of each picture."""
        return list({picture.path: i for i, picture in reversed([*enumerate(self.pictures)])}.values())[::-1]


def captioned_dataset(
    pictures: Sequence[Picture],
    encode: Callable[[str], list[int]],
    beginning: Sequence[int],
    end: int,
    max_len: int,
    how: Preprocessing,
    augmentation: Augmentation,
) -> CaptionedDataset:
    """The pictures with ids; `UserError` for a caption that does not fit into `max_len` behind the `beginning`."""
    tokens, room = [encode(picture.label) for picture in pictures], max_len - len(beginning)
    for picture, ids in zip(pictures, tokens, strict=True):
        if len(ids) > room:
            raise UserError(
                f"{picture.location}: the caption has {len(ids)} pieces, and the model writes {room} at most: cut it"
            )
    return CaptionedDataset(tuple(tokens), tuple(beginning), end, tuple(pictures), how, augmentation)
