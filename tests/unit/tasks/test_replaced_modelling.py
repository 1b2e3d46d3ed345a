"""Replaced-token detection by hand: replacement of masks, classes, losses."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from headwise.config.model import TransformerConfig
from headwise.config.training import TrainConfig
from headwise.errors import UserError
from headwise.pytorch.architectures.hf_layouts import electra_configs
from headwise.pytorch.data.masked_sequences import MaskedBatch
from headwise.pytorch.tasks.replaced_modelling import (
    ALL_MASKED,
    Electra,
    build_electra,
    replace_masks,
    replaced_objective,
    sampled_tokens,
)
from headwise.text.prepared.masking import Masking

SHAPE = TransformerConfig(task="rtd", vocab_size=20, d_model=32, d_ff=48, n_heads=4, n_encoder_layers=1, dropout=0.0,
                    positions="learned", activation="gelu")  # fmt: skip
BATCH = MaskedBatch(torch.tensor([[1, 4, 7, 8, 2], [1, 9, 4, 4, 2]]), torch.tensor([1, 7, 8]), torch.tensor([6, 9, 5]))


def electra() -> Electra:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build_electra(*electra_configs(SHAPE, 8))


def test_replacing_masks_by_hand() -> None:
    """The first of three masks gets the original token, which does not count as replaced."""
    src, replaced = replace_masks(BATCH, torch.tensor([6, 10, 11]))
    assert src.tolist() == [[1, 6, 7, 8, 2], [1, 9, 10, 11, 2]]
    assert replaced.tolist() == [[False] * 5, [False, False, True, True, False]]
    assert BATCH.src.tolist() == [[1, 4, 7, 8, 2], [1, 9, 4, 4, 2]]


def test_all_chosen_tokens_are_masked() -> None:
    masking, tokens = Masking(4, np.arange(5, 20, dtype=np.int64), 0.5, shares=ALL_MASKED), np.arange(5, 20)
    read, places = masking(tokens, np.random.default_rng(0))
    assert (
        (read[places] == 4).all() and len(places) == 8 and (np.delete(read, places) == np.delete(tokens, places)).all()
    )


def test_sampling_follows_the_probabilities() -> None:
    logits = torch.tensor([0.1, 0.2, 0.7]).log().expand(20_000, 3)
    found = torch.bincount(sampled_tokens(logits, torch.Generator().manual_seed(0)), minlength=3) / 20_000
    assert found.tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.02)


def test_both_losses_by_hand() -> None:
    """A uniform generator loses ln 20 per mask, a uniform discriminator 50 ln 2 per token."""
    network = electra()
    for head in (network.generator.head, network.discriminator.head):
        for parameter in head.get_submodule("output").parameters():
            torch.nn.init.zeros_(parameter)
    found = replaced_objective(network, TrainConfig(label_smoothing=0.0), lambda logits: torch.tensor([6, 10, 11]))(
        BATCH
    )
    assert found.objective.item() / 3 == pytest.approx(math.log(20) + 50 * math.log(2), rel=1e-5)
    assert found.figures["accuracy"].item() / 3 == pytest.approx(
        0.8
    )  # two of ten tokens are replaced, and none is detected


def test_the_discriminator_loss_has_no_gradient_in_the_generator() -> None:
    network = electra()
    found = replaced_objective(network, TrainConfig(label_smoothing=0.0), lambda logits: logits.argmax(-1))(BATCH)
    (found.objective - found.figures["generator"]).backward()  # the subtracted metric has no gradient
    both = network.generator.head.get_submodule("dense").weight.grad
    network.zero_grad()
    torch.nn.functional.cross_entropy(
        network.generator(BATCH.src).flatten(0, 1)[BATCH.positions], BATCH.targets, reduction="sum"
    ).backward()
    torch.testing.assert_close(network.generator.head.get_submodule("dense").weight.grad, both)


def test_the_generator_is_smaller_and_shares_embeddings() -> None:
    network = electra()
    names = [name for name, _ in network.named_parameters()]
    assert not any(name.startswith(("generator.embeddings.tokens", "generator.embeddings.positions")) for name in names)
    assert network.generator.head.get_submodule("output").weight is network.discriminator.embeddings.tokens.weight
    assert network.generator.embeddings.project.weight.shape == (8, 32)
    with pytest.raises(UserError, match=r"model.d_model = 36.*2 heads"):
        electra_configs(replace(SHAPE, d_model=36, n_heads=9), 8)
