"""What `train` and `tune` do with their options; needs PyTorch, which their help does without."""

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path

from headwise.evaluate.logs import training_history
from headwise.pytorch.tasks.run import TrainRequest
from headwise.pytorch.tasks.train import train_model
from headwise.pytorch.training.trackers import TRACKERS
from headwise.runtime.checkpoint.model_card import next_steps


def train(options: argparse.Namespace) -> None:
    """Train a model, or resume a run."""
    given = {field.name: getattr(options, field.name) for field in fields(TrainRequest) if hasattr(options, field.name)}
    callbacks = [tracker() for tracker in TRACKERS if tracker.name in options.trackers]
    given["train"] = [*options.train, *options.add]
    reason = train_model(TrainRequest(**given, settings=options.set, callbacks=callbacks))
    is_first = os.environ.get("RANK", "0") == "0"  # torchrun sets it
    if is_first and not reason.startswith("SIG") and is_useful(Path(options.out)):
        print(next_steps(Path(options.out)), file=sys.stderr)


def is_useful(folder: Path) -> bool:
    """Whether a validation has found the model better than guessing."""
    return any(record["best"] for record in training_history(folder).validation)
