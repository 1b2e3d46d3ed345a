"""What is learnt where a decoder tells of a sound or a picture: every piece given those before it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sightline.config import TrainConfig
from sightline.data.told import NOT_PREDICTED, ToldBatch
from sightline.network.transformer import Transformer
from sightline.training.loss import Loss, sequence_loss
from sightline.training.step import Objective, projection


def told_objective(network: Transformer, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of every piece of a text, given those before it and what is heard or seen."""
    states = torch.compile(network.states) if train.compile else network.states

    def objective(batch: ToldBatch) -> Loss:
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
