"""Poolings by hand, for texts of three tokens and one token with padding."""

import pytest
import torch
from torch import Tensor, nn

from headwise.cli import command_parser
from headwise.generation.embed import POOLINGS, Dense, embed, unit

HIDDEN = torch.tensor([[[1.0, -6.0], [2.0, -4.0], [6.0, -2.0]], [[3.0, -5.0], [99.0, 99.0], [99.0, 99.0]]])
MASK = torch.tensor([[True, True, True], [True, False, False]])
BY_HAND = {
    "first": [[1, -6], [3, -5]],
    "last": [[6, -2], [3, -5]],
    "max": [[6, -2], [3, -5]],
    "mean": [[3, -4], [3, -5]],
    "mean_sqrt_len": [[9 / 3**0.5, -12 / 3**0.5], [3, -5]],
    "weighted_mean": [[23 / 6, -20 / 6], [3, -5]],  # (1 + 2 * 2 + 3 * 6) / (1 + 2 + 3), ...
}
# The same without the first token, whose place still counts: (2 * 2 + 3 * 6) / (2 + 3). The second text is empty.
BEHIND_ONE = {
    "first": [2, -4],
    "last": [6, -2],
    "max": [6, -2],
    "mean": [4, -3],
    "mean_sqrt_len": [8 / 2**0.5, -6 / 2**0.5],
    "weighted_mean": [22 / 5, -14 / 5],
}


@pytest.mark.parametrize("name", POOLINGS)
def test_poolings_by_hand(name: str) -> None:
    torch.testing.assert_close(POOLINGS[name](HIDDEN, MASK), torch.tensor(BY_HAND[name], dtype=torch.float32))
    mask = MASK.clone()
    mask[:, :1] = False
    torch.testing.assert_close(POOLINGS[name](HIDDEN, mask)[0], torch.tensor(BEHIND_ONE[name], dtype=torch.float32))


class Counting(nn.Module):
    """Has states (id, 10 id), and records its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0))
        self.read: list[list[list[int]]] = []

    def encode(self, src: Tensor, mask: Tensor) -> Tensor:
        self.read.append(src.tolist())
        return torch.stack([src, 10 * src], dim=-1).half()


def test_batches_by_length_keep_the_order_of_texts() -> None:
    network = Counting()
    found = embed(network, [[2], [1, 3, 5], [], [4, 4]], 7, ["max", "mean"], [], width=4, batch_size=2)
    assert network.read == [[[1, 3, 5], [4, 4, 7]], [[2]]]
    assert found.tolist() == [[2, 20, 2, 20], [5, 50, 3, 30], [0, 0, 0, 0], [4, 40, 4, 40]]


def test_the_prompt_can_be_excluded_from_the_pooling() -> None:
    network = Counting()
    found = embed(network, [[9, 1, 3], [9, 5]], 7, ["mean"], [], width=2, batch_size=2, skip=1)
    assert network.read == [[[9, 1, 3], [9, 5, 7]]]
    assert found.tolist() == [[2, 20], [5, 50]]


def test_steps_after_the_pooling() -> None:
    """tanh(W x + b) of (3, -4), then normalised; and a layer without bias."""
    dense = Dense(torch.tensor([[1.0, 0.5], [0.0, 0.25], [1.0, 1.0]]), torch.tensor([0.0, 1.0, 0.5]), torch.tanh)
    x = torch.tensor([[3.0, -4.0]])
    torch.testing.assert_close(dense(x), torch.tensor([[1.0, 0.0, -0.5]]).tanh())
    bare = Dense(dense.weight, None, torch.relu)
    torch.testing.assert_close(bare(x), torch.tensor([[1.0, 0.0, 0.0]]))
    torch.testing.assert_close(unit(x), torch.tensor([[0.6, -0.8]]))


def test_the_command_offers_every_pooling() -> None:
    actions = command_parser("embed")._actions
    option = next(action for action in actions if "--pooling" in action.option_strings)
    assert option.choices is not None
    assert sorted(option.choices) == sorted(POOLINGS)
