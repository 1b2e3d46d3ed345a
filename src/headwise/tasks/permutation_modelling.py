"""A permutation language model (XLNet, arXiv:1906.08237): tokens of a block in a random order, each from those before.

From scratch by a recipe, or from a folder of an XLNet (`--init`). What comes out is a folder in XLNet's layout, which
every command and `transformers` reads. Texts and what is refused are those of a language model (`language_modelling`).
Not here: what is predicted and in which order (`data/permutation.py`), and the network (`architectures/xlnet.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.architectures.xlnet import XLNet, XLNetShape, build_xlnet, partial_order_mask
from headwise.checkpoint.from_scratch import ScratchLayout, masking_tokens, tokenizer_config
from headwise.checkpoint.layout import CONFIG
from headwise.checkpoint.vocabulary import SETTINGS, bare, fingerprint
from headwise.checkpoint.xlnet import XLNetLayout
from headwise.checkpoint.xlnet_names import shape_to_hf, xlnet_file_tensors
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.data.documents import DocumentTokenizer, document_tokenizer
from headwise.data.permutation import PermutedBatch, PermutedText
from headwise.data.stream import EndlessStream
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError
from headwise.models.language_model import LanguageModel
from headwise.tasks.job import TrainRequest
from headwise.tasks.language_modelling import (
    LanguageJob,
    check_tuned,
    loss_of_logits,
    once_readable,
    own_texts,
    prepared_texts,
)
from headwise.tasks.masked_modelling import check_block_room, marked_tokenizer
from headwise.tasks.pretrained import FineTuning, in_words, unfrozen, xlnet_rows
from headwise.training.loss import Loss, at_least_float32
from headwise.training.step import Objective
from headwise.training.validation import Outputs, Shard, mean_over_shards

MARKS = ("<pad>", "<cls>", "<sep>", "<unk>", "<mask>")  # XLNet's, in the order of a tokenizer of ours
AROUND = "$A:0 {last}:0 {first}:2", "$A:0 {last}:0 $B:1 {last}:1 {first}:2"  # both marks stand behind a text
ONLY = {  # what an XLNet is, in the words of [model]
    "positions": "relative", "norm_position": "post", "norm": "layer", "gated": False, "biases": True, "n_kv_heads": 0,
    "normalise_heads": False, "d_k": 0, "d_v": 0, "encoder_heads": (),
}  # fmt: skip


@dataclass(frozen=True)
class PermutationJob(LanguageJob):
    """See `headwise.tasks.job.Job`."""

    permuted: Callable[[NDArray[Any]], PermutedText] = field(kw_only=True)  # of tokens

    def objective(self, network: nn.Module) -> Objective:
        assert isinstance(network, XLNet)
        return permutation_objective(network, self.config.train)

    def stream(self, state: Mapping[str, int] | None, pin: bool) -> EndlessStream[PermutedBatch]:  # pyright: ignore
        train = self.config.train
        return self.permuted(self.train.tokens).stream(train.tokens_per_batch, train.seed, state, pin)

    @torch.inference_mode()
    def outputs(self, network: nn.Module, device: torch.device, shard: Shard) -> Outputs:
        """Of each batch the log-likelihood of what is predicted, how much of it is right, and how much it is.

        The validation text is always predicted in the same order.
        """
        outputs: Outputs = {"nll": [], "right": [], "targets": []}
        for batch in shard.of(self.permuted(self.valid.tokens).fixed(self.config.train.tokens_per_batch)):
            logits, targets = predicted(network, batch.to(device))
            outputs["nll"].append(F.cross_entropy(logits, targets, reduction="sum").item())
            outputs["right"].append(int((logits.argmax(-1) == targets).sum()))
            outputs["targets"].append(batch.n_targets)
        return outputs

    def figures(self, outputs: Outputs) -> dict[str, float]:
        """Mean negative log-likelihood, in nats, and accuracy of a predicted token."""
        return {
            "loss": mean_over_shards(outputs, "nll", "targets"),
            "accuracy": mean_over_shards(outputs, "right", "targets"),
        }


def permutation_objective(network: XLNet, train: TrainConfig) -> Objective:
    """Label-smoothed cross-entropy of what is predicted, by the query stream."""
    forward = torch.compile(network) if train.compile else network

    def objective(batch: PermutedBatch) -> Loss:
        logits, targets = predicted(forward, batch)
        loss = loss_of_logits(logits, targets, train.label_smoothing)
        right = (logits.detach().argmax(-1) == targets).sum()
        return replace(loss, figures={**loss.figures, "accuracy": right.to(loss.nll.dtype)})

    return objective


def predicted(network: Callable[..., Tensor], batch: PermutedBatch) -> tuple[Tensor, Tensor]:
    """Logits (predictions, vocab) of all that is predicted of a batch, and what stands there."""
    logits = network(batch.src, visible=partial_order_mask(batch.rank), targets=batch.positions)
    return at_least_float32(logits.flatten(0, 1)), batch.targets.flatten()


# --- What it is made of


def begun_xlnet(shape: XLNetShape, length: int, tokenizer: Tokenizer) -> ScratchLayout:
    """The folder of a network of this shape that has read blocks of `length` tokens."""
    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    files = {
        SETTINGS: {**tokenizer_config(tokenizer, length), **masking_tokens(tokenizer)},
        CONFIG: {**shape_to_hf(shape), **ids, "dtype": "float32"},
    }
    return ScratchLayout(files, partial(xlnet_file_tensors, n_layers=shape.n_layers, n_heads=shape.n_heads))


def permutation_job(request: TrainRequest, config: RunConfig, folder: Path) -> PermutationJob:
    """Read, tokenise and check everything that an XLNet is trained on from scratch."""
    xlnet_shape(config.model)
    check_block_room(config, 2)
    request = once_readable(request)
    tokenizer = marked_tokenizer(request, config, folder, MARKS, AROUND)
    model = replace(config.model, vocab_size=tokenizer.vocab_size, pad_id=tokenizer.pad_id)
    shape, length = xlnet_shape(model), config.data.block_length
    about, train, valid = prepared_texts(request, config, document_tokenizer(tokenizer))
    permuted = partial(PermutedText, length=length, suffix=[tokenizer.eos_id, tokenizer.bos_id])
    config, layout = replace(config, model=model), begun_xlnet(shape, length, tokenizer)
    return PermutationJob(config, tokenizer, about, train, valid, layout, lambda: build_xlnet(shape), permuted=permuted)


def tuned_permutation_job(request: TrainRequest, config: RunConfig, folder: Path) -> PermutationJob:
    """The same for a pretrained XLNet that is fine-tuned."""
    check_tuned(request, config)
    model: LanguageModel = FINE_TUNING.read(request.init)
    encode, _, behind = bare(model.tokenizer)
    check_block_room(config, len(behind))
    origin = fingerprint(model.path), model.config.vocab_size
    cutter = DocumentTokenizer(lambda texts: [encode(text) for text in texts], [], behind[:1], *origin)
    about, train, valid = own_texts(request, config, cutter)
    about["network"] = xlnet_rows(model)
    permuted = partial(PermutedText, length=config.data.block_length, suffix=behind)

    def make() -> XLNet:
        unfrozen(model.network, config.model.dropout)
        return model.network

    return PermutationJob(config, model.tokenizer, about, train, valid, XLNetLayout(model), make, permuted=permuted)


FINE_TUNING = FineTuning(
    tuned_permutation_job,
    LanguageModel,
    "an XLNet that predicts tokens",
    "block_length",
    words=in_words,
    heads=("permutation",),
)


def xlnet_shape(c: TransformerConfig) -> XLNetShape:
    """A recipe's [model] as an XLNet, without memory of earlier segments; `UserError` for what XLNet is not."""
    for key, wanted in ONLY.items():
        if getattr(c, key) != wanted:
            raise UserError(f"model.{key} = {getattr(c, key)}: an XLNet has {key} = {wanted}; leave it out")
    return XLNetShape(
        vocab_size=c.vocab_size,
        d_model=c.d_model,
        n_layers=c.n_encoder_layers,
        n_heads=c.n_heads,
        d_ff=c.d_ff,
        activation=c.activation,
        dropout=c.dropout,
    )
