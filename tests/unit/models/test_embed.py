"""Poolings by hand, for texts of three tokens and one token with padding."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.cli import command_parser
from headwise.models.encoding.embed import ACTIVATIONS, POOLINGS, Dense, embed, unit
from headwise.pytorch.models.text_pooling import TEXT_POOLINGS
from headwise.pytorch.search.encoder import TorchEncoder
from headwise.pytorch.tasks.embedding import DENSE

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
    """In numpy, and with gradients for training."""
    torch.testing.assert_close(TEXT_POOLINGS[name](HIDDEN, MASK), torch.tensor(BY_HAND[name], dtype=torch.float32))
    mask = MASK.clone()
    mask[:, :1] = False
    behind_one = torch.tensor(BEHIND_ONE[name], dtype=torch.float32)
    torch.testing.assert_close(TEXT_POOLINGS[name](HIDDEN, mask)[0], behind_one)
    for text, length, wanted in zip(HIDDEN.numpy(), (3, 1), BY_HAND[name], strict=True):
        np.testing.assert_allclose(POOLINGS[name](text[:length], 0), wanted, rtol=1e-6)
    np.testing.assert_allclose(POOLINGS[name](HIDDEN[0].numpy(), 1), BEHIND_ONE[name], rtol=1e-6)


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
    found = embed(TorchEncoder(network, 7), [[2], [1, 3, 5], [], [4, 4]], ["max", "mean"], [], width=4, batch_size=2)
    assert network.read == [[[1, 3, 5], [4, 4, 7]], [[2]]]
    assert found.tolist() == [[2, 20, 2, 20], [5, 50, 3, 30], [0, 0, 0, 0], [4, 40, 4, 40]]


def test_the_prompt_can_be_excluded_from_the_pooling() -> None:
    network = Counting()
    found = embed(TorchEncoder(network, 7), [[9, 1, 3], [9, 5]], ["mean"], [], width=2, batch_size=2, skip=1)
    assert network.read == [[[9, 1, 3], [9, 5, 7]]]
    assert found.tolist() == [[2, 20], [5, 50]]


def test_steps_after_the_pooling() -> None:
    """tanh(W x + b) of (3, -4), then normalised; and a layer without bias."""
    weight = np.array([[1.0, 0.5], [0.0, 0.25], [1.0, 1.0]], np.float32)
    dense = Dense(weight, np.array([0.0, 1.0, 0.5], np.float32), "Tanh")
    x = np.array([[3.0, -4.0]], np.float32)
    np.testing.assert_allclose(dense(x), np.tanh([[1.0, 0.0, -0.5]]), rtol=1e-6)
    np.testing.assert_allclose(Dense(weight, None, "ReLU")(x), [[1.0, 0.0, 0.0]])
    np.testing.assert_allclose(unit(x), [[0.6, -0.8]], rtol=1e-6)
    assert unit(np.zeros((1, 2), np.float32)).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_those_of_training(name: str) -> None:
    x = np.linspace(-6, 6, 97, dtype=np.float32)[None]
    np.testing.assert_allclose(ACTIVATIONS[name](x), DENSE[name](torch.from_numpy(x)), atol=1e-6)


def test_the_command_offers_every_pooling() -> None:
    actions = command_parser("embed")._actions
    option = next(action for action in actions if "--pooling" in action.option_strings)
    assert option.choices is not None
    assert sorted(option.choices) == sorted(POOLINGS)
