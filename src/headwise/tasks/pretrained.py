"""A network of one of the families that is trained on: its weights, its dropouts, its shape in the words of a recipe.

`FineTuning` is what a task says of the published models it starts from; `FINE_TUNING` of its module is one.

What is trained are copies of its weights in float32, whatever numbers its file has; a bias on the logits (Marian, BART)
stays as it is, as in `transformers`. Everything is dropped that the checkpoint's config.json has dropped
(`network/extra_dropout.py`), at its rates. Not here: what it is trained for (`published`, `language_modelling`,
`masked_modelling`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from headwise.checkpoint.with_torch import read_any
from headwise.config.model import ModelConfig, TransformerConfig
from headwise.config.settings import RunConfig
from headwise.errors import UserError
from headwise.models.load import pretrained_model
from headwise.models.model import Model
from headwise.network.config import NetworkConfig
from headwise.network.dropout import Dropout
from headwise.network.extra_dropout import DropoutRates, add_dropout
from headwise.network.transformer import DecoderOnly, EncoderOnly, Transformer
from headwise.tasks.job import Job, TrainRequest

MORE_DROPOUT = {  # and what others there are
    "attention_dropout": "attention",
    "attn_pdrop": "attention",
    "attention_probs_dropout_prob": "attention",
    "activation_dropout": "activation",
    "encoder_layerdrop": "encoder_layer",
    "decoder_layerdrop": "decoder_layer",
}
BERTS = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
USUAL = {  # where config.json says nothing
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "distilbert": {"attention_dropout": 0.1},
    **{name: {"attention_probs_dropout_prob": 0.1} for name in BERTS},
}
NONE_BY_DEFAULT = (
    "vit",
    "deit",
    "gpt_neox",
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
)  # the paper's dropout

Kind = TypeVar("Kind", Transformer, DecoderOnly, EncoderOnly)


def trainable(network: Kind, dropout: float, more: DropoutRates | None = None) -> Kind:
    """The network of a family itself with weights that may change, and all that it drops."""
    unfrozen(network, dropout)
    if not isinstance(network, EncoderOnly) and network.output.bias is not None:
        network.output.bias.requires_grad_(False)
    if more:
        add_dropout(network, more)
    return network


def unfrozen(network: nn.Module, dropout: float) -> None:
    """Let weights change, which become copies, for what a network was given lies in a file; drop as the paper does.

    The copies lie row by row, also where a file has them transposed (GPT-2): so a checkpoint keeps the moments of Adam,
    whose fused kernel pairs numbers by where they lie.
    """
    for parameter in network.parameters():
        parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)
        parameter.requires_grad_(True)
    for module in network.modules():
        if isinstance(module, Dropout):
            module.p = dropout


def more_dropout(hf_config: Mapping[str, Any], dropout: float) -> DropoutRates:
    """The dropouts beside the paper's that a config.json names; T5 has one rate, `dropout`, for all that it drops."""
    if "dropout_rate" in hf_config and "dropout" not in hf_config:
        return DropoutRates(attention=dropout, activation=dropout, stack=dropout)
    values = {**USUAL.get(str(hf_config.get("model_type")), {}), **hf_config}
    named = [name for name in MORE_DROPOUT if values.get(name) is not None]
    rates = {MORE_DROPOUT[name]: float(values[name]) for name in named}
    return DropoutRates(**rates, whole_attention=values.get("model_type") == "distilbert")


def head_dropout(
    rates: DropoutRates, config: NetworkConfig, hf_config: Mapping[str, Any], dropout: float
) -> DropoutRates:
    """The same with what a head for classes drops: its own rate where config.json names one, otherwise the paper's."""
    if config.head == "none":
        return rates
    of_texts = config.head == "text_class"
    if config.head == "image_class":
        return rates
    if config.head == "span":
        return replace(rates, classes=float(hf_config.get("qa_dropout", 0.1)) if config.family == "distilbert" else 0.0)
    named = hf_config.get("classifier_dropout")
    if config.family == "distilbert":
        named = hf_config.get("seq_classif_dropout", 0.2) if of_texts else None
    p = dropout if named is None else float(named)
    return replace(rates, classes=p, pool=p if of_texts and config.family in ("roberta", "electra") else 0.0)


@dataclass(frozen=True)
class FineTuning:
    """What a task starts from where that is a published model."""

    job: Callable[[TrainRequest, RunConfig, Path], Job]
    model: type[Model] | tuple[type[Model], ...]  # that it must be, one of them
    folders: str  # the same in words
    longest: str = ""  # the setting of [data] that says how much is read at once
    report: Callable[[TrainRequest, Any], None] | None = None  # of a job that has ended: what it has changed
    heads: tuple[str, ...] = ()  # one of which a model must have; () = any
    words: Callable[[Any, str], ModelConfig] | None = None  # of a network that has no axes: `described` of it

    def read(self, path: str) -> Any:
        """The model in a folder, its weights in float32; `UserError` where it is none to start from."""
        return self.fit(pretrained_model(read_any(path, dtype="float32")), path)

    def fit(self, model: Model, path: str) -> Any:
        """The model itself, if it is one to start from."""
        if isinstance(model, self.model) and (not self.heads or model.head in self.heads):
            return model
        family = model.info().get("family", "another kind")
        raise UserError(f"--init {path}: is a model of {family} that {model.does}; this task needs {self.folders}")


def xlnet_rows(model: Model) -> dict[str, str]:
    """What the model card says of it."""
    shape = model.config
    sizes = f"d_model {shape.d_model}, d_ff {shape.d_ff}, {shape.n_heads} heads"
    return {
        "architecture": f"xlnet: {shape.n_layers} layer{'s' * (shape.n_layers > 1)}, {sizes}",
        "vocabulary": f"{shape.vocab_size:,} pieces of `{model.path.absolute().name}`",
    }


def in_words(model: Model, task: str) -> TransformerConfig:
    """An XLNet in the words of a recipe, as far as they go: `shape_of`, backwards."""
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
