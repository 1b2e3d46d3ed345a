"""Run by every process of `test_parallel.py` and `test_killed.py`: trains a tiny network and writes the results.

    python ranks_program.py FOLDER BEFORE

Batches are made by hand and uneven. `FOLDER/CASE.RANK.json` has the losses and the parameters of each case. Then the
runs in `BEFORE/stopped`, by another number of processes, are resumed.

    python ranks_program.py --until-killed FOLDER MODE

Trains in `FOLDER` from the newest undamaged checkpoint on, and writes one for every update. The last line of the first
process is a JSON object with its warnings, its first step, and the parameters.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.batches import Batch, collate
from headwise.errors import NonFiniteError, UserError
from headwise.evaluate.logs import TRAINING_LOG, VALIDATION_LOG, read_log
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.data.stream import ALL_BATCHES, BatchShare, EndlessStream, batches_of_epochs
from headwise.pytorch.training.checkpoint import CHECKPOINTS, checkpoint_paths
from headwise.pytorch.training.parallel import ParallelTrainer
from headwise.pytorch.training.ranks import Ranks, full_tensor, process_group
from headwise.pytorch.training.sharded import ShardedTrainer, shard
from headwise.pytorch.training.step import nll_of, translation_objective
from headwise.pytorch.training.trainer import Trainer
from headwise.pytorch.training.validation import Outputs, Shard, mean_over_shards

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
    "muon": {"optimizer": "muon"},
    "reduced": {"reduce": "bf16"},
    "sharded": {"dtype": torch.float64, "shard": "full", "recompute": True},
    "offloaded": {"dtype": torch.float64, "shard": "offload"},
}
KILLED_STEPS = 40
WAITS: list[str] = []  # what this process has waited for, apart from gradients that are summed in the backward pass
MODES: dict[str, dict[str, Any]] = {"copies": {}, "shards": {"shard": "full"}}  # what resumed runs change


def batches() -> list[Batch]:
    """Seven batches of one to five pairs of all lengths."""
    rng = Random(3)
    made = []
    for rows in (5, 1, 3, 2, 4, 1, 5):
        pairs = [tuple([rng.randrange(4, 11) for _ in range(rng.randrange(1, 9))] for _ in "st") for _ in range(rows)]
        made.append(collate(pairs, 0, 1, 2))  # type: ignore[arg-type]
    return made


def in_circles(state: Mapping[str, int] | None, share: BatchShare = ALL_BATCHES) -> EndlessStream[Batch]:
    """A stream that repeats the batches."""
    return EndlessStream(
        lambda start: batches_of_epochs(lambda epoch: batches(), lambda batch: batch, start), state, share
    )


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
        root = shard(network, False, torch.device("cpu"), offload=more["shard"] == "offload")
        kind = partial(ShardedTrainer, *kind.args, root, replica)
    objective = translation_objective(network, model.pad_id, config.train)
    others = in_circles, SevenBatches(), lambda *given: None
    trainer = kind(network, config, objective, *others, folder, torch.device("cpu"), False)
    trainer.seen, trainer.waits = [], []
    precision, updated, began = trainer.precision, trainer.updated, []

    def first(run: Any) -> Any:
        began.append(len(WAITS))
        return precision(run)

    def after(run: Any, batches: list[Batch]) -> None:
        trainer.seen.append([sorted(batch.src.flatten().tolist()) for batch in batches])
        trainer.waits.append(WAITS[began[0] :])
        began.clear()
        updated(run, batches)

    trainer.precision, trainer.updated = first, after
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
    settings = {**CASES["sharded"], "checkpoint_every": 2, "dropout": 0.3}
    before = told(train(folder, parallel(ranks), **settings))["parameters"]
    paths = checkpoint_paths(folder / CHECKPOINTS)
    if ranks.is_main:
        flip(paths[-1] / f"model-00002-of-{ranks.size:05d}.safetensors")
    ranks.barrier("the damage")
    trainer, warnings = made(folder, parallel(ranks), **settings), list[str]()
    trainer.restore(warnings.append)
    step = trainer.progress.step
    trainer.run()
    steps = [path.name for path in paths]
    return {"steps": steps, "step": step, "warnings": warnings, "before": before, **told(trainer)}


def diverged(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """A training whose validation finds no finite prediction, on the last rank alone."""

    class Diverging(SevenBatches):
        def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
            if shard.rank == shard.size - 1:
                raise NonFiniteError("nan")
            return super().outputs(network, device, shard)

    trainer = made(folder, parallel(ranks), checkpoint_every=2, keep_last=5)
    trainer.validation = Diverging()
    try:
        trainer.run()
    except UserError as error:
        return {"error": str(error), "left": [path.name for path in checkpoint_paths(folder / CHECKPOINTS)]}
    return {}


def stopped_and_resumed(out: Path, before: Path, kind: Any, ranks: Ranks | None = None) -> dict[str, Any]:
    """Stop a run in each mode after three updates, and resume the runs in `before` in each mode."""
    results = {}
    for name, mode in MODES.items():
        train(out / "stopped" / name, kind, dtype=torch.float64, max_steps=3, **mode)
        for run in sorted((before / "stopped").iterdir()):
            folder = out / "continued" / f"{run.name} to {name}"
            if not ranks or ranks.is_main:
                shutil.copytree(run, folder)
            if ranks:
                ranks.barrier("the copy")
            trainer, warnings = made(folder, kind, dtype=torch.float64, **mode), list[str]()
            assert trainer.restore(warnings.append)
            trainer.run()
            results[f"{run.name} to {name}"] = {"warnings": warnings, **told(trainer)}
    return results


def told(trainer: Any) -> dict[str, Any]:
    """The values that a test compares; the first rank has the logs."""
    lines, judged = (read_log(trainer.folder / name) for name in (TRAINING_LOG, VALIDATION_LOG))
    if trainer._shard.rank:
        lines, judged = [], []
    return {
        "losses": [line["loss"] for line in lines],
        "judged": [(line["loss"], line["batches"]) for line in judged],
        "tokens": [round(line["tokens_per_second"] * line["seconds"]) for line in lines],
        "operations": [round(1e12 * line["tflops"] * line["seconds"]) for line in lines],
        "parameters": {name: full_tensor(value).tolist() for name, value in trainer.model.named_parameters()},
        "average": {name: full_tensor(value).tolist() for name, value in trainer.average.items()},
        "seen": trainer.seen,
        "waits": trainer.waits,
        "draws": torch.rand(3).tolist(),
    }


def parallel(ranks: Ranks) -> Any:
    return partial(ParallelTrainer, ranks)


def until_killed(folder: Path, mode: str) -> None:
    """See the module."""
    warnings: list[str] = []
    with nullcontext() if mode == "alone" else process_group("cpu", 60.0) as ranks:
        more = {"max_steps": KILLED_STEPS, "checkpoint_every": 1, "keep_last": 3, "dropout": 0.3, **MODES.get(mode, {})}
        trainer = made(folder, parallel(ranks) if ranks else Trainer, **more)
        trainer.restore(warnings.append)
        step = trainer.progress.step
        trainer.run()
        parameters = told(trainer)["parameters"]
        if not trainer._shard.rank:
            print(json.dumps({"warnings": warnings, "step": step, "parameters": parameters}), file=sys.stderr)


def note_waits() -> None:
    """Fill `WAITS` from now on."""
    waiting_for = Ranks.waiting_for

    def noted(ranks: Ranks, what: str) -> AbstractContextManager[None]:
        WAITS.append(what)
        return waiting_for(ranks, what)

    Ranks.waiting_for = noted  # type: ignore[method-assign]


def all_cases(out: Path, before: Path) -> None:
    """See the module."""
    note_waits()
    with process_group("cpu", 60.0) as ranks:
        for case, settings in CASES.items():
            record = told(train(out / f"{case}-{ranks.size}", parallel(ranks), **settings))
            (out / f"{case}.{ranks.rank}.json").write_text(json.dumps(record))
        record = resumed_from_the_one_before(out / "shared", ranks)
        (out / f"resumed.{ranks.rank}.json").write_text(json.dumps(record))
        (out / f"diverged.{ranks.rank}.json").write_text(json.dumps(diverged(out / "diverged", ranks)))
        results = stopped_and_resumed(out, before, parallel(ranks), ranks)
        (out / f"changed.{ranks.rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # the folder of the tests
    from holding import stop_when_told

    stop_when_told()
    if sys.argv[1] == "--until-killed":
        until_killed(Path(sys.argv[2]), sys.argv[3])
    else:
        all_cases(Path(sys.argv[1]), Path(sys.argv[2]))
