"""Training encoder-decoders that write about sounds or images: cross-entropy of the next token.

Validation computes the same loss, and metrics of greedy search. See `captioning` and `transcription` for inputs, search
and metrics.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config.training import TrainConfig
from headwise.core.loss import Loss, sequence_loss
from headwise.core.train import Objective
from headwise.core.transformer import Transformer
from headwise.pytorch.data.conditional_generation import NOT_PREDICTED, ConditionalBatch
from headwise.pytorch.data.stream import BatchShare, EndlessStream
from headwise.pytorch.tasks.job import Job
from headwise.pytorch.tasks.validation import progress_bar
from headwise.pytorch.training.step import projection
from headwise.pytorch.training.validation import Outputs, Shard, ValidationSample, mean_over_shards


@dataclass(frozen=True)
class ConditionalGenerationJob(Job):
    """Texts for pictures or sounds, `ConditionalDataset`s; subclasses define inputs, search and metrics."""

    model: Any  # the initial model
    show: bool = False  # progress of a validation

    @property
    def baseline(self) -> dict[str, float]:
        return {"loss": math.log(self.config.model.vocab_size)}

    @property
    def size(self) -> int:
        """Inputs per batch."""
        raise NotImplementedError

    @property
    def rows(self) -> Sequence[int]:
        """The inputs of `valid` for greedy search."""
        return range(len(self.valid))

    def generate_texts(self, network: Transformer, memory: Float[Tensor, "rows positions d_model"]) -> list[str]:
        """Greedy search for encoded inputs."""
        raise NotImplementedError

    def score_texts(self, texts: Sequence[str]) -> dict[str, float]:
        """Metrics of the texts for `rows`."""
        raise NotImplementedError

    @property
    def first(self) -> tuple[str, str]:
        """The file name of the first of the `rows`, and its text."""
        raise NotImplementedError

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, Transformer)
        return conditional_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, share: BatchShare) -> EndlessStream[ConditionalBatch]:
        return self.train.stream(self.size, self.config.train.seed, state, share)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """For each batch the log-likelihood of its texts, and the texts of greedy search for its `rows`."""
        assert isinstance(network, Transformer)
        searched, outputs = {*self.rows}, Outputs(nll=[], targets=[], text=[])
        own = [*shard.of(self.valid.in_order(self.size))]
        with progress_bar(sum(map(len, own)), self.show) as bar:
            for inputs in own:
                batch = self.valid.load(inputs).to(device)
                memory = network.encode(batch.values)
                nll = conditional_loss(network, network.decode(batch.tgt_in, memory), batch.tgt_out).nll
                chosen = [i for i, row in enumerate(inputs.tolist()) if row in searched]
                outputs["nll"].append(nll.item())
                outputs["targets"].append(batch.n_targets)
                outputs["text"].append(self.generate_texts(network, memory[chosen]) if chosen else [])
                bar.update(len(inputs))
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """The loss in nats per token, and the metrics of greedy search."""
        return {
            "loss": mean_over_shards(outputs, "nll", "targets"),
            **self.score_texts([*chain.from_iterable(outputs["text"])]),
        }

    def sample(self, outputs: Outputs) -> ValidationSample:
        """The text for the first input."""
        source, reference = self.first
        return ValidationSample(source, next(chain.from_iterable(outputs["text"])), reference)


def conditional_objective(network: Transformer, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of each token, given those before it and the input."""
    states = torch.compile(network.states) if train.compile else network.states

    def objective(batch: ConditionalBatch) -> Loss:
        return conditional_loss(network, states(batch.values, batch.tgt_in), batch.tgt_out, train.label_smoothing)

    return objective


def conditional_loss(
    network: Transformer,
    hidden: Float[Tensor, "batch tgt_len d_model"],
    tgt_out: Int[Tensor, "batch tgt_len"],
    label_smoothing: float = 0.0,
) -> Loss:
    """Loss of the tokens of `tgt_out` to predict, summed, in nats."""
    weight, bias, _ = projection(network)
    predicted = tgt_out != NOT_PREDICTED
    return sequence_loss(hidden[predicted][None], weight, tgt_out[predicted], label_smoothing, bias=bias)
