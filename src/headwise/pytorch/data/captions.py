"""Images with captions: `file TAB caption` per line; an image with several captions is on several lines.

File names are relative to the folder of the table. Images are checked before training. Training is in
`headwise.pytorch.tasks.captioning`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from headwise.errors import UserError
from headwise.pytorch.data.conditional_generation import ConditionalDataset, SampleSeed, encode_texts
from headwise.pytorch.data.image import Preprocessing, check_image
from headwise.pytorch.data.pictures import Augmentation, Picture, augmented_pixels
from headwise.text.files.corpus import read_lines
from headwise.text.files.sources import file_and_text

FORMAT = "write 'file TAB caption' on every line"


def read_captions(paths: Sequence[str]) -> list[Picture]:
    """The captioned images of tables, one per line, with captions stripped.

    Raises:
        UserError: a line is malformed, a caption is empty, or an image is missing or invalid.
    """
    pictures = [picture for path in paths for picture in _read_table(path)]
    for picture in {picture.path: picture for picture in pictures}.values():
        check_image(picture.path, picture.location)
    return pictures


def _read_table(path: str) -> Iterator[Picture]:
    if not path.removesuffix(".gz").endswith(".tsv"):
        raise UserError(f"{path}: images with captions must be .tsv files; {FORMAT}")
    for number, line in enumerate(read_lines(path), start=1):
        location = f"{path}: line {number}"
        file, caption = file_and_text(line, location, FORMAT)
        if not (file and caption):
            raise UserError(f"{location} names no file" if caption else f"{location} has an empty caption; remove it")
        yield Picture(Path(path).parent / file, location, caption)


def captions_by_picture(pictures: Sequence[Picture]) -> dict[Path, list[str]]:
    """The captions of each image, in order.

    >>> [a, b] = [Picture(Path("a.png"), "", caption) for caption in ("a dog", "a brown dog")]
    >>> list(captions_by_picture([a, b]).values())
    [['a dog', 'a brown dog']]
    """
    captions: dict[Path, list[str]] = {}
    for picture in pictures:
        captions.setdefault(picture.path, []).append(picture.label)
    return captions


@dataclass(frozen=True)
class CaptionedDataset(ConditionalDataset):
    """Preprocessed images with the token ids of their captions."""

    pictures: tuple[Picture, ...]
    preprocessing: Preprocessing
    augmentation: Augmentation

    def values(self, row: int, seed: SampleSeed | None) -> Float[Tensor, "3 height width"]:
        return augmented_pixels(self.pictures[row], self.preprocessing, self.augmentation, seed)

    @property
    def first(self) -> list[int]:
        """The first row of each image."""
        return list({picture.path: i for i, picture in reversed([*enumerate(self.pictures)])}.values())[::-1]


def captioned_dataset(
    pictures: Sequence[Picture],
    encode: Callable[[str], list[int]],
    prompt: Sequence[int],
    end: int,
    max_len: int,
    preprocessing: Preprocessing,
    augmentation: Augmentation,
) -> CaptionedDataset:
    """Tokenise the captions; `UserError` if a caption is longer than `max_len` with the `prompt`."""
    texts = ((picture.label, picture.location) for picture in pictures)
    tokens = encode_texts(texts, encode, max_len - len(prompt), "caption", "shorten it")
    return CaptionedDataset(tokens, tuple(prompt), end, tuple(pictures), preprocessing, augmentation)
