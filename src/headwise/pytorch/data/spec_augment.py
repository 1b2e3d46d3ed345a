"""SpecAugment (arXiv:1904.08779): time and frequency masking of spectrograms in training.

Spans of frames and mel bands, which may overlap, are set to 0; there is no time warping. The number of spans is that of
`transformers` (`_compute_mask_indices`) over the whole window, including the silence after a recording. Deviation: the
number of spans is rounded randomly for each recording, not once for a batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Spans:
    """Masks spans along one axis."""

    share: float  # masked share of the axis if no spans overlap
    length: int  # of a span
    least: int  # minimum number of spans if the share is not 0

    def __call__(self, size: int, generator: np.random.Generator) -> NDArray[np.bool_]:
        """A mask of `size` frames or bands, True where masked."""
        if not self.share:
            return np.zeros(size, dtype=bool)
        n = self.count(size, generator.random())
        return span_mask(generator.choice(size - self.length + 1, n, replace=False), self.length, size)

    def count(self, size: int, rounding: float) -> int:
        """The number of spans; `rounding` in [0, 1) is added before the fraction is cut off.

        >>> Spans(share=0.25, length=4, least=0).count(40, rounding=0.4), Spans(0.25, 4, 0).count(40, rounding=0.6)
        (2, 3)
        >>> Spans(0.05, 10, least=2).count(100, 0.0), Spans(0.9, 4, 0).count(5, 0.5)  # 0.5, and there is room for 1
        (2, 1)
        """
        wanted = max(int(self.share * size / self.length + rounding), self.least)
        return min(wanted if wanted * self.length <= size else size // self.length, size - self.length + 1)


def span_mask(starts: NDArray[np.int64], length: int, size: int) -> NDArray[np.bool_]:
    """A mask that is True in all spans.

    >>> span_mask(np.array([1, 2, 6]), length=2, size=9).astype(int).tolist()
    [0, 1, 1, 1, 0, 0, 1, 1, 0]
    """
    mask = np.zeros(size, dtype=bool)
    mask[(starts[:, None] + np.arange(length)).ravel()] = True
    return mask


@dataclass(frozen=True)
class SpecAugment:
    """Masks a spectrogram along both axes."""

    time: Spans
    bands: Spans

    def __call__(
        self, mel: Float[Tensor, "n_mels frames"], generator: np.random.Generator
    ) -> Float[Tensor, "n_mels frames"]:
        """The spectrogram with random spans set to 0."""
        n_mels, frames = mel.shape
        kept = ~self.time(frames, generator), ~self.bands(n_mels, generator)
        return mel * torch.from_numpy(kept[0]) * torch.from_numpy(kept[1])[:, None]
