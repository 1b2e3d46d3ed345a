"""What is learnt where a decoder tells of a sound or a picture: every piece given those before it.

A validation has the same loss, and judges what greedy search writes. Not here: what is heard or seen, how texts are
searched for, and by what they are judged (`captioning`, `transcription`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.checkpoint.tuned import SameLayout
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.conditional_generation import NOT_PREDICTED, ConditionalBatch
from headwise.data.stream import EndlessStream
from headwise.network.transformer import Transformer
from headwise.tasks.validation import progress_bar
from headwise.training.loss import Loss, sequence_loss
from headwise.training.step import Objective, projection
from headwise.training.validation import Outputs, Shard, mean_over_shards


@dataclass(frozen=True)
class TellingJob:
    """See `headwise.tasks.job.Job`; subclasses say what is told of."""

    config: RunConfig
    tokenizer: Any
    about: dict[str, Any]
    train: Any  # a `ConditionalDataset`
    valid: Any
    layout: SameLayout
    model: Any  # that training starts from
    signature: str = ""
    show: bool = False  # progress of a validation

    @property
    def baseline(self) -> dict[str, float]:
        return {"loss": math.log(self.config.model.vocab_size)}

    @property
    def size(self) -> int:
        """Inputs of a batch."""
        raise NotImplementedError

    @property
    def rows(self) -> Sequence[int]:
        """The inputs of `valid` that something is written of."""
        return range(len(self.valid))

    def written(self, network: Transformer, memory: Float[Tensor, "rows positions d_model"]) -> list[str]:
        """What greedy search makes of inputs that the encoder has read."""
        raise NotImplementedError

    def judged(self, written: Sequence[str]) -> dict[str, float]:
        """Figures of what was written of `rows`."""
        raise NotImplementedError

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, Transformer)
        return told_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[ConditionalBatch]:
        return self.train.stream(self.size, self.config.train.seed, state, pin)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """Of each batch the log-likelihood of its texts, and what greedy search writes for those of `rows`."""
        assert isinstance(network, Transformer)
        searched, outputs = {*self.rows}, Outputs(nll=[], targets=[], written=[])
        own = [*shard.of(self.valid.in_order(self.size))]
        with progress_bar(sum(map(len, own)), self.show) as bar:
            for inputs in own:
                batch = self.valid.load(inputs).to(device)
                memory = network.encode(batch.values)
                nll = told_loss(network, network.decode(batch.tgt_in, memory), batch.tgt_out).nll
                chosen = [i for i, row in enumerate(inputs.tolist()) if row in searched]
                outputs["nll"].append(nll.item())
                outputs["targets"].append(batch.n_targets)
                outputs["written"].append(self.written(network, memory[chosen]) if chosen else [])
                bar.update(len(inputs))
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Nats a token of all texts, and what `judged` says of those that greedy search writes."""
        return {
            "loss": mean_over_shards(outputs, "nll", "targets"),
            **self.judged([*chain.from_iterable(outputs["written"])]),
        }


def told_objective(network: Transformer, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of every piece of a text, given those before it and what is heard or seen."""
    states = torch.compile(network.states) if train.compile else network.states

    def objective(batch: ConditionalBatch) -> Loss:
        return told_loss(network, states(batch.values, batch.tgt_in), batch.tgt_out, train.label_smoothing)

    return objective


def told_loss(
    network: Transformer,
    hidden: Float[Tensor, "batch tgt_len d_model"],
    tgt_out: Int[Tensor, "batch tgt_len"],
    label_smoothing: float = 0.0,
) -> Loss:
    """Loss of predicting what of `tgt_out` is to be predicted, summed, in nats."""
    weight, bias, _ = projection(network)
    wanted = tgt_out != NOT_PREDICTED
    return sequence_loss(hidden[wanted][None], weight, tgt_out[wanted], label_smoothing, bias=bias)
