"""A custom task as in CONTRIBUTING: predict the number after a text. `test_extending.py` trains it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from headwise.config.settings import RunConfig
from headwise.core.loss import Loss
from headwise.core.train import Objective
from headwise.models.model import Model
from headwise.pytorch.data.labelled import LabelledBatch, collate_labelled
from headwise.pytorch.tasks.classification import ClassificationJob, classification_job
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.checkpoint.folder import Folder


class CountingJob(ClassificationJob):
    """Predicts the number after a text by least squares."""

    def _loss(self, network: nn.Module, batch: LabelledBatch) -> Tensor:
        values = torch.tensor([float(label) / self.config.data.unit for label in self.train.labels])
        return (network(*batch.inputs)[:, 0] - values[batch.labels]).square().sum()

    def objective(self, network: nn.Module) -> Objective:
        return lambda batch: Loss(self._loss(network, batch), {})

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        batches = (self.valid.load(self.tokenizer, rows) for rows in shard.of(self.valid.plan(1000, seed=0, epoch=0)))
        return {"loss": [self._loss(network, batch).item() for batch in batches]}

    def figures(self, outputs: Outputs) -> dict[str, float]:
        return {"loss": sum(outputs["loss"]) / len(self.valid)}


def counting_job(request: TrainRequest, config: RunConfig, folder: Path) -> CountingJob:
    job = classification_job(request, config, folder)
    model = replace(job.config.model, n_outputs=1)
    return CountingJob(replace(job.config, model=model), job.tokenizer, job.about, job.train, job.valid)


class Counter(Model):
    does = "counts"

    def __init__(self, folder: Folder) -> None:
        self.path, self.network, self.tokenizer = folder.path, folder.network, folder.tokenizer
        self.config, self.unit = folder.config, folder.config.data.unit

    def count(self, texts: Sequence[str]) -> list[float]:
        ids = self.tokenizer.encode_batch(texts)
        batch = collate_labelled(ids, [0] * len(ids), self.tokenizer.pad_id, self.tokenizer.eos_id)
        return (self.unit * self.network(*batch.inputs)[:, 0]).tolist()
