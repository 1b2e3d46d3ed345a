"""The promise of tests/conftest.py: a tensor of the wrong shape cannot pass a signature while tests run."""

import pytest
import torch
from jaxtyping import TypeCheckError

from headwise.network.masks import over_keys


def test_shapes_are_checked() -> None:
    with pytest.raises(TypeCheckError):
        over_keys(torch.zeros(2, 3, 4, dtype=torch.bool))
