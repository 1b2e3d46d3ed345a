"""Training of these networks: they learn to reverse, and a resumed run is bit-identical."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from headwise.config.model import ModelConfig, longest_sequence
from headwise.config.settings import RunConfig, SearchSettings
from headwise.config.training import TrainConfig
from headwise.core.batches import Batch, collate
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.search.stepwise import engine_of
from headwise.pytorch.training.step import translation_objective
from headwise.pytorch.training.trainer import Trainer
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.search.engine import decode_tokens

Pair = tuple[list[int], list[int]]
DIGITS = range(4, 14)  # ids 0 to 3 are pad, start, end and unknown
TRAIN = TrainConfig(
    learning_rate=0.01, warmup_steps=20, schedule="linear", clip_norm=1.0, label_smoothing=0.0, average=1, log_every=1
)
CHANGES: dict[str, dict[str, Any]] = {
    "bahdanau": {"d_model": 32},
    "conv": {"d_model": 32, "max_len": 12},
}


def pairs(n: int, seed: int) -> list[Pair]:
    """Strings of 1 to 5 digits, and their reversals."""
    rng = Random(seed)
    strings = [[rng.choice(DIGITS) for _ in range(rng.randint(1, 5))] for _ in range(n)]
    return [(digits, digits[::-1]) for digits in strings]


class Batches:
    """64 new pairs per batch, from the position of the stream."""

    wait_seconds = 0.0

    def __init__(self, state: dict[str, int] | None) -> None:
        self.position = (state or {"epoch": 0})["epoch"]

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.position += 1
            yield collate(pairs(64, self.position), 0, 1, 2)

    def state(self) -> dict[str, int]:
        return {"epoch": self.position}

    def close(self) -> None:
        pass


class Indifferent:
    """A validation whose loss is always 1."""

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        return {}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        return {"loss": 1.0}


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Trainer]:
    def make(model: ModelConfig, folder: str = "run", **train: Any) -> Trainer:
        torch.manual_seed(5)
        config = RunConfig(model=model, train=replace(TRAIN, **train))
        place = tmp_path / folder
        network = build_network(model)
        return Trainer(
            network,
            config,
            translation_objective(network, model.pad_id, config.train),
            Batches,
            Indifferent(),
            lambda *_: None,
            place,
            torch.device("cpu"),
            show=False,
        )

    return make


@pytest.mark.thorough
@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("variant", CHANGES)
def test_learns_to_reverse(variant: str, trainer: Callable[..., Trainer], configure) -> None:
    model = configure(variant, vocab_size=14, **CHANGES[variant])
    run = trainer(model, max_steps=400, validate_every=400, checkpoint_every=400)
    assert run.run() == "finished"
    unseen = pairs(300, seed=-1)
    config = SearchSettings(beam_size=1, max_length_factor=1.0, max_length_extra=2)
    found = decode_tokens(engine_of(run.model), [src for src, _ in unseen], config, max_len=longest_sequence(model))
    right = sum(h.tokens == tgt for [h], (_, tgt) in zip(found, unseen, strict=True))
    assert right >= 0.99 * len(unseen)


@pytest.mark.parametrize("variant", ["luong", "lstm-reversed", "conv"])
def test_a_resumed_run_is_bit_identical(variant: str, trainer: Callable[..., Trainer], configure) -> None:
    model = configure(variant, vocab_size=14, dropout=0.2)
    settings = {"schedule": "constant", "r_drop": 1.0, "ema": 0.9, "checkpoint_every": 3, "validate_every": 100}
    whole = trainer(model, "whole", max_steps=6, **settings)
    whole.run()
    trainer(model, "stopped", max_steps=3, **settings).run()
    resumed = trainer(model, "stopped", max_steps=6, **settings)
    torch.manual_seed(99)  # the random state comes from the checkpoint
    assert resumed.restore(pytest.fail)
    resumed.run()
    expected = dict(whole.model.named_parameters())
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.named_parameters())
    assert resumed.progress.step == whole.progress.step == 6


def test_recomputing_a_convolutional_network_gives_the_same_run(trainer: Callable[..., Trainer], configure) -> None:
    model = configure("conv", vocab_size=14, dropout=0.2)
    after = []
    for recompute in (False, True):
        run = trainer(model, str(recompute), max_steps=2, recompute=recompute)
        run.run()
        after.append(dict(run.model.named_parameters()))
    assert all(torch.equal(value, after[1][name]) for name, value in after[0].items())
