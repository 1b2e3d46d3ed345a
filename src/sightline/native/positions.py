"""Section 3.5, sinusoidal positions: one table for the compiled library and for torch (`network/positions.py`)."""

import numpy as np
from numpy.typing import NDArray


def sinusoids(start: int, length: int, d_model: int) -> NDArray[np.float32]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same, for `length` positions.

    Computed in float64 and rounded once, so that a position has the same code whatever the length.
    """
    rate = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    angle = np.arange(start, start + length, dtype=np.float64)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, -1).astype(np.float32)
