"""Fine-tuning of pretrained networks: weights, dropout, and rows of the model card.

`FineTuning` describes the pretrained models that a task supports; the `FINE_TUNING` of a task's module is one.

Weights are copied to float32, whatever the precision of the file. The bias on the logits (Marian, BART) is frozen, as
in `transformers`. Dropout has the rates of config.json, also where the paper has none
(`pytorch/training/extra_dropout.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from headwise.config.model import ModelConfig, TransformerConfig
from headwise.config.network import NetworkConfig
from headwise.config.settings import RunConfig
from headwise.core.dropout import Dropout
from headwise.core.transformer import DecoderOnly, EncoderOnly, Transformer
from headwise.errors import UserError
from headwise.families.registry import traits_of
from headwise.models.load import pretrained_model
from headwise.models.model import Model
from headwise.pytorch.tasks.job import Job, MakeJob, TrainRequest
from headwise.pytorch.training.extra_dropout import DropoutRates, add_dropout
from headwise.runtime.checkpoint.read import read_folder
from headwise.text.files.sources import count_of

EXTRA_DROPOUT = {  # in config.json, besides the paper's dropout
    "attention_dropout": "attention",
    "attn_pdrop": "attention",
    "attention_probs_dropout_prob": "attention",
    "activation_dropout": "activation",
    "mlp_dropout": "activation",
    "encoder_layerdrop": "encoder_layer",
    "decoder_layerdrop": "decoder_layer",
}
NetworkT = TypeVar("NetworkT", Transformer, DecoderOnly, EncoderOnly)


def trainable_network(model: Any, dropout: float) -> Any:
    """The network of a pretrained model for fine-tuning, with the dropout rates of its config.json."""
    return make_trainable(model.network, dropout, extra_dropout_rates(model.hf_config, dropout))


def make_trainable(network: NetworkT, dropout: float, more: DropoutRates | None = None) -> NetworkT:
    """Let the weights of a pretrained network change, and add its dropout; returns the network."""
    unfreeze(network, dropout)
    if not isinstance(network, EncoderOnly) and network.output.bias is not None:
        network.output.bias.requires_grad_(False)
    if more:
        add_dropout(network, more)
    return network


def unfreeze(network: nn.Module, dropout: float) -> None:
    """Copy the weights, which may be mapped from a file, let them change, and set the paper's dropout.

    The copies are contiguous, even if the file is transposed (GPT-2): the fused Adam kernel pairs numbers by memory
    order, and a checkpoint must keep the moments.
    """
    for parameter in network.parameters():
        parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)
        parameter.requires_grad_(True)
    for module in network.modules():
        if isinstance(module, Dropout):
            module.p = dropout


def extra_dropout_rates(hf_config: Mapping[str, Any], dropout: float) -> DropoutRates:
    """The dropout rates of config.json besides the paper's; T5 has one rate for everything, `dropout`."""
    if "dropout_rate" in hf_config and "dropout" not in hf_config:
        return DropoutRates(attention=dropout, activation=dropout, stack=dropout)
    usual = traits_of(hf_config.get("model_type")).dropout
    values = {**usual.more, **hf_config}
    named = [name for name in EXTRA_DROPOUT if values.get(name) is not None]
    rates = {EXTRA_DROPOUT[name]: float(values[name]) for name in named}
    return DropoutRates(**rates, whole_attention=usual.whole_attention, whole_ffn=usual.whole_ffn)


def with_head_dropout(
    rates: DropoutRates, config: NetworkConfig, hf_config: Mapping[str, Any], dropout: float
) -> DropoutRates:
    """The rates with the dropout of a classification head: from config.json if it has one, otherwise the paper's."""
    if config.head in ("none", "image_class"):
        return rates
    usual = traits_of(config.family).dropout
    key, rate = usual.heads.get(config.head, ("", None))
    named = hf_config.get(key, rate)
    p = float(named) if named is not None else 0.0 if config.head == "span" else dropout
    return replace(rates, classes=p, pool=p if config.head == "text_class" and usual.pooled else 0.0)


@dataclass(frozen=True)
class FineTuning:
    """The fine-tuning of a pretrained model for a task."""

    job: Callable[[TrainRequest, RunConfig, Path], Job]
    model: type[Model] | tuple[type[Model], ...]  # the supported classes
    expected: str  # the same in words, for messages
    length_setting: str = ""  # the setting of [data] for the input length
    report: Callable[[TrainRequest, Any], None] | None = None  # called at the end of training
    heads: tuple[str, ...] = ()  # the supported heads; () = any
    settings_of: Callable[[Any, str], ModelConfig] | None = None  # [model] for a network without a `NetworkConfig`

    def read(self, path: str) -> Any:
        """The model in a folder, with weights in float32; `UserError` if the task does not support it."""
        return self.fit(pretrained_model(read_folder(path, dtype="float32")), path)

    def fit(self, model: Model, path: str) -> Any:
        """The model itself; `UserError` if the task, or the loss of an encoder-decoder, does not support it."""
        axes = getattr(model, "config", None)
        if isinstance(axes, NetworkConfig) and axes.encoder and axes.decoder and axes.logit_cap:
            raise UserError(f"--init {path}: {axes.family} has capped logits, with which only decoders can be trained")
        if isinstance(model, self.model) and (not self.heads or model.head in self.heads):
            return model
        family = model.info().get("family", "another kind")
        raise UserError(f"--init {path}: is a {family} model that {model.does}; this task needs {self.expected}")


@dataclass(frozen=True)
class TaskJobs:
    """The jobs of a task: training from scratch, and fine-tuning of a pretrained model."""

    from_scratch: MakeJob | None  # None = only from a pretrained model
    fine_tuning: FineTuning | None = None  # None = only from scratch


def xlnet_rows(model: Model) -> dict[str, str]:
    """The rows of the model card for an XLNet."""
    shape = model.config
    return stack_rows(model, "xlnet", shape, shape.vocab_size)


def stack_rows(model: Model, family: str, stack: Any, vocab_size: int) -> dict[str, str]:
    """The rows of the model card for one stack of layers and a vocabulary."""
    sizes = f"d_model {stack.d_model}, d_ff {stack.d_ff}, {count_of(stack.n_heads, 'head')}"
    architecture = f"{family}: {count_of(stack.n_layers, 'layer')}, {sizes}"
    return {"architecture": architecture, **(vocabulary_row(model, vocab_size) if vocab_size else {})}


def vocabulary_row(model: Model, vocab_size: int) -> dict[str, str]:
    """The row of the model card for the vocabulary of the initial model."""
    return {"vocabulary": f"{vocab_size:,} tokens of `{model.path.absolute().name}`"}


def dropout_row(rates: DropoutRates, dropout: float | str) -> dict[str, str]:
    """The row of the model card for dropout rates besides the paper's `dropout`; empty if there are none."""
    listed = ", ".join(f"{name} {rate}" for name, rate in vars(rates).items() if rate)
    return {"dropout": f"besides {dropout}: {listed}"} if listed else {}


def xlnet_model_settings(model: Model, task: str) -> TransformerConfig:
    """[model] of a recipe for an XLNet."""
    shape = model.config
    return TransformerConfig(
        task=task,
        vocab_size=shape.vocab_size,
        pad_id=int(model.hf_config.get("pad_token_id") or 0),
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        n_heads=shape.n_heads,
        n_encoder_layers=shape.n_layers,
        dropout=shape.dropout,
        activation=shape.activation.partition("_")[0],
        positions="relative",
    )
