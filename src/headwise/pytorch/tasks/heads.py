"""Heads for fine-tuning encoders: classes of texts, tokens or images, and the spans of answers.

A head of the same kind and size in the initial model is kept. Otherwise the network gets the head that `transformers`
has for its family, initialized as there, with the pretrained pooler if there is one (BERT). Other heads are discarded.
An XLNet only gets a head for texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.core.build import build_empty, empty_parameters, parameters_of, replace_parameter, tie
from headwise.errors import UserError
from headwise.families.registry import FAMILIES, OTHERS, traits_of
from headwise.models.encoding.label import ONE, class_names
from headwise.models.load import pretrained_model
from headwise.models.model import Model
from headwise.pytorch.architectures.xlnet import XLNetShape, build_xlnet
from headwise.pytorch.checkpoint.adapter_layout import head_entries
from headwise.pytorch.checkpoint.published import unread_tensors
from headwise.pytorch.checkpoint.xlnet_names import shape_from_hf
from headwise.pytorch.tasks.job import TrainRequest, base_names, notify
from headwise.pytorch.tasks.pretrained import (
    dropout_row,
    extra_dropout_rates,
    make_trainable,
    stack_rows,
    unfreeze,
    with_head_dropout,
    xlnet_rows,
)
from headwise.runtime.checkpoint.trained import RUN

ENCODERS = "an encoder (BERT or a similar model)"
TEXT_CLASSIFIERS = f"{ENCODERS} or an XLNet"
CLASS_SUFFIXES = {  # by head
    "none": "Model",
    "text_class": "ForSequenceClassification",
    "token_class": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "image_class": "ForImageClassification",
}


def with_head(model: Model, head: str, labels: Sequence[str], problem: str = ONE) -> Any:
    """The model with the config.json of a model with this head and these classes; its network is not changed.

    `labels` is empty for the heads "span" and "none"; `problem` is the problem type of "text_class".
    """
    kind = str(model.hf_config.get("model_type"))
    classes = traits_of(kind).head_classes
    if not classes:
        able = [name for name in (*FAMILIES, *OTHERS) if traits_of(name).head_classes]
        raise UserError(f"{model.path}: {kind} has no head for classes; supported are {', '.join(able)}")
    others = ("num_labels", "problem_type", "id2label", "label2id")
    values = {key: value for key, value in model.hf_config.items() if key not in others}
    values["architectures"] = [classes + CLASS_SUFFIXES[head]]
    if labels:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if head == "text_class":
        values["problem_type"] = problem
    config: Any = shape_from_hf(values) if kind == "xlnet" else FAMILIES[kind].config_from_hf(values)
    return pretrained_model(replace(model.folder, config=config, about=values))


def labels_in_order(request: TrainRequest, model: Model, head: str, names: Sequence[str]) -> list[str]:
    """The labels in the order of the head's classes, if it has them all; otherwise as given."""
    if model.config.head != head or model.config.n_classes != len(names):
        return list(names)
    old = class_names(model.hf_config, model.config.n_classes)
    if set(old) == set(names):
        return list(old)
    notify(request, f"renaming the classes of {request.init}: {', '.join(old)} become {', '.join(names)}")
    return list(names)


def pretrained_head(base: Model, model: Model) -> dict[str, Tensor]:
    """The parameters of the head that the initial model has with the same shape, and those of a pooler.

    Heads of several kinds may share a layer, which has one name in the file (ModernBERT).
    """
    found = {} if isinstance(base.config, XLNetShape) else _unused_parameters(base, model) | _shared_layers(base, model)
    if base.config.head == model.config.head:
        found |= {name: value for name, value in parameters_of(base.network).items() if name.startswith("head.")}
    shapes = {name: value.shape for name, value in _empty_network(model.config).named_parameters()}
    return {name: value for name, value in found.items() if value.shape == shapes.get(name)}


def _unused_parameters(base: Model, model: Model) -> dict[str, Tensor]:
    """The parameters for the head in the folder that the network of `base` does not use."""
    unread, table = unread_tensors(base.path), FAMILIES[str(model.hf_config["model_type"])].table(model.config)
    return {
        f"{name}.{part}": unread[f"{key}.{part}"].float()
        for key, name in table.items()
        for part in ("weight", "bias")
        if name.startswith("head.") and f"{key}.{part}" in unread
    }


def _shared_layers(base: Model, model: Model) -> dict[str, Tensor]:
    """The parameters of the head of `base`, other than its classes, that the head of `model` has in the same place."""
    parameters = parameters_of(base.network)
    own = {entry.key: entry for entry in head_entries(base.network, base)}
    wanted = {entry.key: entry for entry in head_entries(_empty_network(model.config), model)}
    return {
        wanted[key].names[0]: parameters[entry.names[0]]
        for key, entry in own.items()
        if key in wanted and not wanted[key].names[0].startswith(("head.classes", "head.output"))
    }


def _empty_network(config: Any) -> Any:
    """A network whose parameters are to be replaced."""
    if not isinstance(config, XLNetShape):
        return build_empty(config)
    with empty_parameters():
        return build_xlnet(config)


def network_with_head(base: Model, model: Model, known: Mapping[str, Tensor], dropout: float) -> Any:
    """The body of `base` with the head of `model`, for training.

    Parameters of the head that are not `known` are initialized as in `transformers`: weights normal with
    `initializer_range` (0.02), biases zero.
    """
    config: Any = model.config
    network = _empty_network(config)
    body = {name: value for name, value in parameters_of(base.network).items() if not name.startswith("head.")}
    given, deviation = {**body, **known}, float(model.hf_config.get("initializer_range") or 0.02)
    for name, parameter in list(network.named_parameters()):
        if name in given:
            replace_parameter(network, name, given[name])
        elif name.endswith("bias"):
            replace_parameter(network, name, torch.zeros(parameter.shape))
        elif name.endswith("norm.weight"):
            replace_parameter(network, name, torch.ones(parameter.shape))
        else:
            replace_parameter(network, name, torch.randn(parameter.shape) * deviation)
    if isinstance(config, XLNetShape):
        unfreeze(network, dropout)
        network.head.dropout.p = config.head_dropout
        return network
    tie(network, config)
    rates = with_head_dropout(extra_dropout_rates(model.hf_config, dropout), config, model.hf_config, dropout)
    return make_trainable(network, dropout, rates)


def head_message(model: Model, what: str, known: Mapping[str, Tensor]) -> str:
    """A message that says whether the head is new."""
    name = model.path.absolute().name
    if {"head.classes.weight", "head.outputs.0.weight"} & known.keys():
        return f"training the head of {name} for {what}"
    pooled = ", after its pretrained pooler" if "head.pool.weight" in known else ""
    replaced = "" if model.config.head == "none" else f", instead of its head ({model.config.head})"
    return f"a new head for {what} on {name}{pooled}{replaced}"


def describe_run(
    request: TrainRequest,
    model: Model,
    dropout: float,
    amount: str,
    corpus: Mapping[str, Any],
    held: Mapping[str, Any],
    labels: Sequence[str] = (),
    called: str = "labels",
) -> dict[str, Any]:
    """The entries for `training.json` and the model card.

    Args:
        amount: the training data in words.
        corpus: size and keys of the data.
        held: the entry of a part held out of the training files; empty if validation files were named.
        called: the name of the labels in the card.
    """
    train = base_names(request.train)
    valid = train if held else base_names(request.valid)
    named = {called: ", ".join(labels)} if labels else {}
    return {
        "corpus": {"train": train, "valid": valid, **corpus, **held},
        **({"labels": [*labels]} if labels else {}),
        "material": {**named, "training data": f"{', '.join(train)}: {amount}"},
        "network": encoder_card_rows(model, dropout),
        "settings": RUN,
    }


def encoder_card_rows(model: Model, dropout: float) -> dict[str, str]:
    """The rows of the model card for the network."""
    if isinstance(model.config, XLNetShape):
        return xlnet_rows(model)
    config = model.config
    rates = with_head_dropout(extra_dropout_rates(model.hf_config, dropout), config, model.hf_config, dropout)
    return {**stack_rows(model, config.family, config.encoder, config.vocab_size), **dropout_row(rates, dropout)}
