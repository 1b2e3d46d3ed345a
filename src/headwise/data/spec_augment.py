"""SpecAugment (arXiv:1904.08779): spans of a spectrogram that a network does not hear while it trains.

Frames and mel bands are set to 0 in spans that may overlap; time is not warped. There are as many spans as in
`transformers` (`_compute_mask_indices`), over the whole window, whatever part of it is silence behind a recording.
Deviation: whether a part of a span is rounded up is drawn for each recording, not once for a batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Spans:
    """What is masked along one axis."""

    share: float  # of the axis, if no two overlapped
    length: int  # of each
    least: int  # so many at least, where there is a share at all

    def __call__(self, size: int, generator: np.random.Generator) -> NDArray[np.bool_]:
        """Which of `size` frames or bands are masked."""
        if not self.share:
            return np.zeros(size, dtype=bool)
        n = self.count(size, generator.random())
        return span_mask(generator.choice(size - self.length + 1, n, replace=False), self.length, size)

    def count(self, size: int, rounding: float) -> int:
        """How many spans; `rounding` from 0 to 1 decides of a part of one.

        >>> Spans(share=0.25, length=4, least=0).count(40, rounding=0.4), Spans(0.25, 4, 0).count(40, rounding=0.6)
        (2, 3)
        >>> Spans(0.05, 10, least=2).count(100, 0.0), Spans(0.9, 4, 0).count(5, 0.5)  # 0.5, and there is room for 1
        (2, 1)
        """
        wanted = max(int(self.share * size / self.length + rounding), self.least)
        return min(wanted if wanted * self.length <= size else size // self.length, size - self.length + 1)


def span_mask(starts: NDArray[np.int64], length: int, size: int) -> NDArray[np.bool_]:
    """What spans of a length cover that begin there.

    >>> span_mask(np.array([1, 2, 6]), length=2, size=9).astype(int).tolist()
    [0, 1, 1, 1, 0, 0, 1, 1, 0]
    """
    mask = np.zeros(size, dtype=bool)
    mask[(starts[:, None] + np.arange(length)).ravel()] = True
    return mask


@dataclass(frozen=True)
class SpecAugment:
    """Masks along both axes."""

    time: Spans
    bands: Spans

    def __call__(
        self, mel: Float[Tensor, "n_mels frames"], generator: np.random.Generator
    ) -> Float[Tensor, "n_mels frames"]:
        """The spectrogram with what is drawn set to 0."""
        n_mels, frames = mel.shape
        kept = ~self.time(frames, generator), ~self.bands(n_mels, generator)
        return mel * torch.from_numpy(kept[0]) * torch.from_numpy(kept[1])[:, None]
