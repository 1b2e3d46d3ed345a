"""The core alone: it learns to copy, and translates.

Parameters and translations are those of the product, bit for bit.
"""

import random
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.config.from_recipe import transformer_config
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.contract import SearchOptions
from headwise.core.batches import Batch, collate
from headwise.core.build import build
from headwise.core.loss import Loss, sequence_loss
from headwise.core.optimizer import make_optimizer, peak_learning_rate
from headwise.core.train import Hooks, Objective, Run, train
from headwise.core.translate import translate

PAD, BOS, EOS, FIRST = 0, 1, 2, 4
MODEL = TransformerConfig(vocab_size=14, d_model=64, n_heads=4, d_ff=128, n_encoder_layers=1, n_decoder_layers=1)
TRAIN = TrainConfig(max_steps=500, warmup_steps=100, learning_rate=0.003, validate_every=1000, checkpoint_every=1000)


def texts(seed: int, n: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(FIRST, MODEL.vocab_size) for _ in range(draw.randint(3, 8))] for _ in range(n)]


def copies(seed: int) -> Batch:
    return collate([(text, text) for text in texts(seed, 32)], PAD, BOS, EOS)


def endless() -> Iterator[Batch]:
    return (copies(seed) for seed in count(1))


def objective_of(network: Any) -> Objective:
    """Section 5.4, of padded batches."""

    def objective(batch: Batch) -> Loss:
        hidden = network.states(batch.src, batch.tgt_in, batch.src_mask)
        real = batch.tgt_out != PAD
        return sequence_loss(hidden[real][None], network.output.weight, batch.tgt_out[real], TRAIN.label_smoothing)

    return objective


def run_of(config: TrainConfig, network: Any) -> Run:
    optimizer, peak = make_optimizer(network, config), peak_learning_rate(config, MODEL.d_model)
    return Run(network, objective_of(network), optimizer, endless(), config, peak, torch.device("cpu"))


@pytest.mark.thorough
def test_it_learns_to_copy() -> None:
    torch.manual_seed(1)
    network = build(transformer_config(MODEL))
    run = run_of(TRAIN, network)
    train(run, Hooks())
    assert run.progress.step == TRAIN.max_steps and run.progress.skipped == 0
    sources = texts(-1, 200)
    found = translate(network.eval(), [[*text, EOS] for text in sources], SearchOptions(beam_size=1), [12] * 200)
    assert sum(best.tokens == text for (best, *_), text in zip(found, sources, strict=True)) >= 0.99 * len(sources)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_its_translations_are_those_of_the_product(beam_size: int) -> None:
    from headwise.config.settings import SearchSettings
    from headwise.pytorch.search.stepwise import TorchEngine
    from headwise.runtime.search.engine import decode_tokens

    torch.manual_seed(1)
    network = build(transformer_config(MODEL)).eval()
    sources = texts(-1, 20)
    settings = SearchSettings(beam_size=beam_size, n_best=beam_size, max_length_factor=0.0, max_length_extra=9)
    product = decode_tokens(TorchEngine(network), sources, settings)
    options = SearchOptions(beam_size=beam_size, n_best=beam_size, length_penalty=settings.length_penalty)
    assert translate(network, [[*text, EOS] for text in sources], options, [9] * 20) == product


def test_its_parameters_are_those_of_the_product(tmp_path: Path) -> None:
    from headwise.pytorch.training.trainer import Trainer
    from headwise.pytorch.training.validation import Outputs, Shard

    class Stream:
        wait_seconds = 0.0

        def __iter__(self) -> Iterator[Batch]:
            return endless()

        def state(self) -> dict[str, Any]:
            return {"epoch": 0}

        def close(self) -> None: ...

    class Indifferent:
        def outputs(self, network: Any, device: torch.device, shard: Shard) -> Outputs:
            return {}

        def figures(self, outputs: Outputs) -> dict[str, float]:
            return {"loss": 1.0}

    config = TrainConfig(max_steps=6, accumulate=2, clip_norm=0.5, log_every=2, learning_rate=0.003, precision="fp32")
    torch.manual_seed(1)
    ours = build(transformer_config(MODEL))
    theirs = deepcopy(ours)
    torch.manual_seed(2)
    train(run_of(config, ours), Hooks())
    torch.manual_seed(2)
    settings = RunConfig(model=MODEL, train=config)
    product = Trainer(
        theirs, settings, objective_of(theirs), lambda _: Stream(), Indifferent(), lambda *_: None, tmp_path,
        torch.device("cpu"), show=False,
    )  # fmt: skip
    assert product.run() == "finished"
    assert all(torch.equal(value, theirs.get_parameter(name)) for name, value in ours.named_parameters())


def test_hooks_are_called_in_order() -> None:
    called: list[tuple[str, int]] = []

    class Listening(Hooks):
        def updated(self, run: Run, batches: Any) -> None:
            called.append(("updated", run.progress.step))

        def log(self, run: Run) -> None:
            called.append(("log", run.progress.step))

        def validate(self, run: Run) -> None:
            called.append(("validate", run.progress.step))
            super().validate(run)

        def save(self, run: Run, last: bool) -> None:
            called.append(("save last" if last else "save", run.progress.step))

        def stops(self, run: Run) -> bool:
            return run.progress.step == 5

    config = TrainConfig(max_steps=9, log_every=2, validate_every=3, checkpoint_every=4)
    train(run_of(config, build(transformer_config(MODEL))), Listening())
    assert called == [
        ("updated", 1), ("updated", 2), ("log", 2), ("updated", 3), ("validate", 3), ("updated", 4), ("log", 4),
        ("save", 4), ("updated", 5), ("save last", 5),
    ]  # fmt: skip


def test_an_update_that_is_not_finite_changes_nothing() -> None:
    network = build(transformer_config(MODEL))
    run = run_of(TrainConfig(max_steps=1), network)
    before = deepcopy(network.state_dict())
    whole = run.objective
    run.objective = lambda batch: Loss((loss := whole(batch)).objective * float("inf"), loss.figures)
    train(run, Hooks())
    assert run.progress.skipped == 1 and all(
        torch.equal(network.state_dict()[name], kept) for name, kept in before.items()
    )
