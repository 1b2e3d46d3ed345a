"""Run by every process of `test_parallel.py`: trains a tiny network and writes the results.

    python ranks_program.py FOLDER

Batches are made by hand and uneven. `FOLDER/CASE.RANK.json` has the losses and the parameters of each case.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

from headwise.architectures.transformer import build_model
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.batch import Batch, collate
from headwise.training.checkpoint import CHECKPOINTS, checkpoint_paths
from headwise.training.parallel import ParallelTrainer
from headwise.training.ranks import Ranks, full_tensor, process_group
from headwise.training.sharded import ShardedTrainer, shard
from headwise.training.step import nll_of, translation_objective
from headwise.training.trainer import Trainer
from headwise.training.validation import Outputs, Shard, mean_over_shards

SHAPE: dict[str, Any] = {"d_model": 8, "d_ff": 16, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2}
MODEL = TransformerConfig(vocab_size=11, dropout=0.0, **SHAPE)
TRAIN = TrainConfig(
    max_steps=5, learning_rate=0.01, warmup_steps=2, log_every=1, validate_every=5, checkpoint_every=100, average=1,
    accumulate=4, clip_norm=1.0, ema=0.5, label_smoothing=0.1, precision="float32",
)  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "float64": {"dtype": torch.float64, "r_drop": 1.0},
    "float32": {},
    "uneven": {"dtype": torch.float64, "accumulate": 5},
    "dropout": {"dropout": 0.3},
    "sharded": {"dtype": torch.float64, "shard": "full", "recompute": True},
    "offloaded": {"dtype": torch.float64, "shard": "offload"},
}


def batches() -> list[Batch]:
    """Seven batches of one to five pairs of all lengths."""
    rng = Random(3)
    made = []
    for rows in (5, 1, 3, 2, 4, 1, 5):
        pairs = [tuple([rng.randrange(4, 11) for _ in range(rng.randrange(1, 9))] for _ in "st") for _ in range(rows)]
        made.append(collate(pairs, 0, 1, 2))  # type: ignore[arg-type]
    return made


class Circle:
    """A stream that repeats a few batches."""

    wait_seconds = 0.0

    def __init__(self, state: Mapping[str, int] | None) -> None:
        self.batches, self.given = batches(), state["given"] if state else 0

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.given += 1
            yield self.batches[(self.given - 1) % len(self.batches)]

    def state(self) -> dict[str, int]:
        return {"epoch": self.given // len(self.batches), "given": self.given}

    def close(self) -> None:
        pass


class SevenBatches:
    """A validation on seven batches, shared unevenly by the ranks."""

    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        own = [*shard.of(batches())]
        nll = [nll_of(network, batch, MODEL.pad_id, device) for batch in own]
        return {"nll": nll, "targets": [batch.n_target_tokens for batch in own]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        return {"loss": mean_over_shards(outputs, "nll", "targets"), "batches": float(len(outputs["nll"]))}


def made(folder: Path, kind: Any, dtype: torch.dtype = torch.float32, dropout: float = 0.0, **more: Any) -> Any:
    """A trainer of `kind` before its run."""
    torch.manual_seed(5)
    model = replace(MODEL, dropout=dropout)
    config = RunConfig(model=model, train=replace(TRAIN, **more))
    network = build_model(model).to(dtype)
    if more.get("shard") and kind is not Trainer:
        replica = deepcopy(network)
        root = shard(network, "float32", torch.device("cpu"), offload=more["shard"] == "offload")
        kind = partial(ShardedTrainer, *kind.args, root, replica)
    objective = translation_objective(network, model.pad_id, config.train)
    others = Circle, SevenBatches(), lambda *given: None
    trainer = kind(network, config, objective, *others, folder, torch.device("cpu"), False)
    trainer.seen = []
    update = trainer._update

    def recorded(given: list[Batch], clock: Any) -> None:
        trainer.seen.append([sorted(batch.src.flatten().tolist()) for batch in given])
        update(given, clock)

    trainer._update = recorded
    return trainer


def train(folder: Path, kind: Any, **settings: Any) -> Trainer:
    """A trainer of `kind` after its run."""
    trainer = made(folder, kind, **settings)
    trainer.run()
    return trainer


def flip(path: Path) -> None:
    """Damage a file in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def resumed_from_the_one_before(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """A sharded training, resumed after damage to its newest checkpoint that only one rank checks."""
    settings = {**CASES["sharded"], "checkpoint_every": 2}
    before = told(train(folder, parallel(ranks), **settings))["parameters"]
    paths = checkpoint_paths(folder / CHECKPOINTS)
    if ranks.is_main:
        flip(paths[-1] / "__1_0.distcp")
    ranks.barrier("the damage")
    trainer, warnings = made(folder, parallel(ranks), **settings), list[str]()
    trainer.restore(warnings.append)
    step = trainer.progress.step
    trainer.run()
    steps = [path.name for path in paths]
    return {"steps": steps, "step": step, "warnings": warnings, "before": before, **told(trainer)}


def told(trainer: Any) -> dict[str, Any]:
    """The values that a test compares."""
    logs = (trainer.folder / name for name in ("metrics.jsonl", "validation.jsonl"))
    lines, judged = (
        [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else [] for log in logs
    )
    return {
        "losses": [line["loss"] for line in lines],
        "judged": [(line["loss"], line["batches"]) for line in judged],
        "tokens": [round(line["tokens_per_second"] * line["seconds"]) for line in lines],
        "parameters": {name: full_tensor(value).tolist() for name, value in trainer.model.named_parameters()},
        "average": {name: full_tensor(value).tolist() for name, value in trainer.average.items()},
        "seen": trainer.seen,
        "draws": torch.rand(3).tolist(),
    }


def parallel(ranks: Ranks) -> Any:
    return partial(ParallelTrainer, ranks)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    with process_group("cpu", 60.0) as ranks:
        for case, settings in CASES.items():
            folder = out / f"{case}-{ranks.size}" / (str(ranks.rank) if ranks.rank else "first")
            record = told(train(folder, parallel(ranks), **settings))
            (out / f"{case}.{ranks.rank}.json").write_text(json.dumps(record))
        record = resumed_from_the_one_before(out / "shared", ranks)
        (out / f"resumed.{ranks.rank}.json").write_text(json.dumps(record))
