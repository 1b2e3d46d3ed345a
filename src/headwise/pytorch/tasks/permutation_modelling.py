"""Training permutation language models (XLNet, arXiv:1906.08237) on running text, from scratch or from an XLNet.

Tokens of a block are predicted in a random order. The result is a folder in XLNet's layout. Texts and checks are those
of `language_modelling`. See `pytorch/data/permutation.py` for the orders and `pytorch/architectures/xlnet.py` for the
network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.loss import Loss, at_least_float32
from headwise.core.train import Objective
from headwise.errors import UserError
from headwise.models.language.language_model import XLNetModel
from headwise.pytorch.architectures.xlnet import XLNet, XLNetShape, build_xlnet, partial_order_mask
from headwise.pytorch.checkpoint.from_scratch import ScratchLayout, masking_tokens, tokenizer_config
from headwise.pytorch.checkpoint.xlnet import XLNetLayout
from headwise.pytorch.checkpoint.xlnet_names import shape_to_hf, xlnet_file_tensors
from headwise.pytorch.data.permutation import PermutedBatch, PermutedText
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.language_modelling import (
    check_fine_tuning,
    masked_loss,
    prepared_texts,
    texts_for_model,
    with_spooled_files,
)
from headwise.pytorch.tasks.masked_modelling import MaskedJob, check_block_room, tokenizer_with_template
from headwise.pytorch.tasks.pretrained import FineTuning, TaskJobs, unfreeze, xlnet_model_settings, xlnet_rows
from headwise.pytorch.training.validation import Outputs, Shard
from headwise.runtime.checkpoint.layout import CONFIG
from headwise.runtime.tokenizers.vocabulary import SETTINGS, bare
from headwise.text.files.documents import PreparedText, document_tokenizer
from headwise.text.tokens.tokenizer import Tokenizer

XLNET_TOKENS = ("<pad>", "<cls>", "<sep>", "<unk>", "<mask>")  # XLNet's, in the order of `Tokenizer`
XLNET_TEMPLATES = "$A:0 {last}:0 {first}:2", "$A:0 {last}:0 $B:1 {last}:1 {first}:2"  # for a text, and for a pair
FIXED = {  # settings in [model] that XLNet has
    "positions": "relative", "norm_position": "post", "norm": "layer", "gated": False, "biases": True, "n_kv_heads": 0,
    "normalise_heads": False, "d_k": 0, "d_v": 0, "encoder_heads": (),
}  # fmt: skip


@dataclass(frozen=True)
class PermutationJob(MaskedJob):
    """Tokens of running text in random orders (XLNet)."""

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, XLNet)
        return permutation_objective(network, self.config.train)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """For each batch the log-likelihood of predicted tokens, how many are right, and their number."""
        assert isinstance(network, XLNet)
        outputs: Outputs = {"nll": [], "right": [], "targets": []}
        for batch in shard.of(self.validation_batches()):
            logits, targets = permuted_logits(network, batch.to(device))
            outputs["nll"].append(F.cross_entropy(logits, targets, reduction="sum").item())
            outputs["right"].append(int((logits.argmax(-1) == targets).sum()))
            outputs["targets"].append(batch.n_targets)
        return outputs


def permutation_objective(network: XLNet, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of the tokens that the query stream predicts."""
    forward = torch.compile(network) if train.compile else network

    def objective(batch: PermutedBatch) -> Loss:
        return masked_loss(*permuted_logits(forward, batch), train.label_smoothing)

    return objective


def permuted_logits(network: Callable[..., Tensor], batch: PermutedBatch) -> tuple[Tensor, Tensor]:
    """Logits (predictions, vocab) and targets of a batch."""
    logits = network(batch.src, visible=partial_order_mask(batch.rank), targets=batch.positions)
    return at_least_float32(logits.flatten(0, 1)), batch.targets.flatten()


def xlnet_layout(shape: XLNetShape, length: int, tokenizer: Tokenizer) -> ScratchLayout:
    """The layout for a network trained from scratch on blocks of `length` tokens."""
    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    files = {
        SETTINGS: {**tokenizer_config(tokenizer, length), **masking_tokens(tokenizer)},
        CONFIG: {**shape_to_hf(shape), **ids, "dtype": "float32"},
    }
    return ScratchLayout(files, partial(xlnet_file_tensors, n_layers=shape.n_layers, n_heads=shape.n_heads))


def permutation_job(request: TrainRequest, config: RunConfig, folder: Path) -> PermutationJob:
    """Read, tokenise and check the data for training from scratch."""
    xlnet_shape(config.model)
    check_block_room(config, 2)
    request = with_spooled_files(request)
    tokenizer = tokenizer_with_template(request, config, folder, XLNET_TOKENS, XLNET_TEMPLATES)
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id)
    shape, length = xlnet_shape(model), config.data.block_length
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    permuted = _permuted(length, [tokenizer.eos_id, tokenizer.bos_id])
    config, layout = replace(config, model=model), xlnet_layout(shape, length, tokenizer)
    return PermutationJob(
        config, tokenizer, about, train, valid, lambda: build_xlnet(shape), layout=layout, blocks=permuted
    )


def fine_tuning_job(request: TrainRequest, config: RunConfig, folder: Path) -> PermutationJob:
    """Read, tokenise and check the data for fine-tuning."""
    check_fine_tuning(request, config)
    model: XLNetModel = FINE_TUNING.read(request.init)
    behind = bare(model.tokenizer)[2]
    check_block_room(config, len(behind))
    about, train, valid = texts_for_model(request, config, model.cutter)
    about["network"] = xlnet_rows(model)
    permuted = _permuted(config.data.block_length, behind)

    def make() -> XLNet:
        unfreeze(model.network, config.model.dropout)
        return model.network

    return PermutationJob(
        config, model.tokenizer, about, train, valid, make, layout=XLNetLayout(model), blocks=permuted
    )


FINE_TUNING = FineTuning(
    fine_tuning_job,
    XLNetModel,
    "an XLNet that predicts tokens",
    "block_length",
    settings_of=xlnet_model_settings,
    heads=("permutation",),
)
JOBS = TaskJobs(permutation_job, FINE_TUNING)


def xlnet_shape(c: TransformerConfig) -> XLNetShape:
    """The XLNet for [model] of a recipe, without segment memory; `UserError` for unsupported settings."""
    for key, value in FIXED.items():
        if getattr(c, key) != value:
            raise UserError(f"model.{key} = {getattr(c, key)}: an XLNet has {key} = {value}; leave it out")
    return XLNetShape(
        vocab_size=c.vocab_size,
        d_model=c.d_model,
        n_layers=c.n_encoder_layers,
        n_heads=c.n_heads,
        d_ff=c.d_ff,
        activation=c.activation,
        dropout=c.dropout,
    )


def _permuted(length: int, suffix: Sequence[int]) -> Callable[[PreparedText], PermutedText]:
    return lambda text: PermutedText(text.tokens, length, suffix)
