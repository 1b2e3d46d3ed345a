"""The promise of tests/conftest.py: a tensor of the wrong shape cannot pass a signature while tests run."""

import pytest
import torch
from jaxtyping import TypeCheckError

from sightline.network.masks import padding_mask


def test_shapes_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        padding_mask(torch.zeros(2, 3, 4, dtype=torch.long), 0)
