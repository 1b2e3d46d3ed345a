"""Section 3.2.3: masks."""

import pytest
import torch

from headwise.core.masks import causal_mask


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (4, 4), (1, 5), (3, 7)])
def test_causal_mask_allows_the_position_itself_and_earlier_ones(queries: int, keys: int) -> None:
    mask = causal_mask(queries, keys, torch.device("cpu"))
    positions = range(keys - queries, keys)  # of the queries, which are the last of the keys
    assert mask.tolist() == [[key <= position for key in range(keys)] for position in positions]
