"""Peak memory of a training step, with and without `train.recompute`, each in its own process.

    python benchmarks/recompute.py [--pairs 64] [--length 32]

The network has the base model's layers and a vocabulary of 1,000 tokens. It runs on a CPU with packed sequences (no
padding).
"""

import argparse
from collections.abc import Callable

import machine
from work import BOS, EOS, PAD
from workers import Worker, peak_memory


def step(recompute: bool, pairs: int, length: int) -> Callable[[], int]:
    """A function that runs a step on `pairs` pairs of `length` tokens a side, and returns the added bytes."""
    from headwise.config.model import TransformerConfig
    from headwise.config.training import TrainConfig
    from headwise.core.batches import collate
    from headwise.pytorch.architectures.transformer import build_model
    from headwise.pytorch.training.step import translation_objective
    from headwise.pytorch.training.trainer import recompute_layers
    from headwise.runtime.allocator import keep_freed_memory

    keep_freed_memory()
    model = build_model(TransformerConfig(vocab_size=1000)).train()
    if recompute:
        recompute_layers(model)
    objective = translation_objective(model, PAD, TrainConfig())

    def train(rows: int) -> None:
        side = [EOS + 1] * (length - 1)
        objective(collate([(side, side)] * rows, PAD, BOS, EOS)).objective.backward()

    def measure() -> int:
        train(1)
        before = peak_memory()
        train(pairs)
        return peak_memory() - before

    return measure


def main() -> None:
    """Measure both and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=machine.pick(64, 4))
    parser.add_argument("--length", type=int, default=machine.pick(32, 8))
    machine.add_quick_option(parser)
    options = parser.parse_args()
    for recompute in (False, True):
        worker = Worker(step, recompute, options.pairs, options.length, threads=1)
        print(f"train.recompute={str(recompute).lower()}: {worker().value / 2**20:,.0f} MiB")
        worker.close()


if __name__ == "__main__":
    main()
