"""The sinusoidal positions of section 3.5 as arrays; as tensors they are in `model/positions.py`, bit for bit."""

import numpy as np
from numpy.typing import NDArray


def sinusoids(length: int, d_model: int) -> NDArray[np.float32]:
    """Codes (length, d_model): PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same."""
    rate = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    angle = np.arange(length, dtype=np.float64)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, -1).astype(np.float32)
