"""The head of a published encoder that learns what a head is for: classes of texts, tokens, pictures; ends of answers.

A folder with such a head, for as many classes, is trained on with it. Any other gets the head that `transformers` has
for its family, drawn as there; of what the folder holds, a pooler is its beginning (BERT), and other heads are left
behind. An XLNet's is for classes of texts. Not here: what is learnt (`labelling`, `tagging`, `answering`, `pictures`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.architectures.xlnet import XLNetShape, build_xlnet
from headwise.checkpoint.published import unread_tensors
from headwise.checkpoint.trained import RUN
from headwise.checkpoint.xlnet_names import shape_from_hf
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.generation.label import class_names
from headwise.models.load import pretrained_model
from headwise.models.model import Model
from headwise.network.build import build_empty, empty_parameters
from headwise.network.parameters import parameters_of, replace_parameter
from headwise.tasks.job import TrainRequest, base_names, notify
from headwise.tasks.pretrained import head_dropout, more_dropout, trainable, unfrozen, xlnet_rows

LABELLED = "an encoder alone (BERT or one of its relatives) or an XLNet"  # that get a head for classes of texts
ENCODERS = "an encoder alone (BERT or one of its relatives)"  # that get the others
NETWORKS = {  # how transformers calls the networks of a family, without what says their head
    "bert": "Bert",
    "camembert": "Camembert",
    "deit": "DeiT",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "roberta": "Roberta",
    "vit": "ViT",
    "xlm-roberta": "XLMRoberta",
    "xlnet": "XLNet",
}
ENDINGS = {  # and what says it
    "none": "Model",
    "text_class": "ForSequenceClassification",
    "token_class": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "image_class": "ForImageClassification",
}


def with_head(model: Model, head: str, labels: Sequence[str]) -> Any:
    """The model as its config.json would have it with a head for these classes; for the ends of answers, and where it
    is to have no head, there are none. The network is still without.
    """
    kind = str(model.hf_config.get("model_type"))
    if kind not in NETWORKS:
        raise UserError(f"{model.path}: no head for classes is known for {kind}, only for {', '.join(NETWORKS)}")
    others = ("num_labels", "problem_type", "id2label", "label2id")
    values = {key: value for key, value in model.hf_config.items() if key not in others}
    values["architectures"] = [NETWORKS[kind] + ENDINGS[head]]
    if labels:
        values["id2label"] = {str(i): label for i, label in enumerate(labels)}
        values["label2id"] = {label: i for i, label in enumerate(labels)}
    if head == "text_class":
        values["problem_type"] = "single_label_classification"
    config: Any = shape_from_hf(values) if kind == "xlnet" else FAMILIES[kind].config_from_hf(values)
    return pretrained_model(replace(model.folder, config=config, about=values))


def labels_in_order(request: TrainRequest, model: Model, head: str, names: Sequence[str]) -> list[str]:
    """The labels in the order of the head's classes, if it has them all; otherwise as given."""
    if model.config.head != head or model.config.n_classes != len(names):
        return list(names)
    there = class_names(model.hf_config, model.config.n_classes)
    if set(there) == set(names):
        return list(there)
    notify(request, f"the classes {', '.join(there)} of {request.init} are called {', '.join(names)} from now on")
    return list(names)


def known_head(base: Model, model: Model) -> dict[str, Tensor]:
    """The parameters of the head that the folder has: of one for the same those of the same shape, and a pooler."""
    found = {} if isinstance(base.config, XLNetShape) else _unread(base, model)
    if base.config.head == model.config.head:
        found |= {name: value for name, value in parameters_of(base.network).items() if name.startswith("head.")}
    shapes = {name: value.shape for name, value in _unfilled(model.config).named_parameters()}
    return {name: value for name, value in found.items() if value.shape == shapes.get(name)}


def _unread(base: Model, model: Model) -> dict[str, Tensor]:
    """What stands in the folder for the head, and no network reads."""
    unread, table = unread_tensors(base.path), FAMILIES[str(model.hf_config["model_type"])].table(model.config)
    return {
        f"{name}.{part}": unread[f"{key}.{part}"].float()
        for key, name in table.items()
        for part in ("weight", "bias")
        if name.startswith("head.") and f"{key}.{part}" in unread
    }


def _unfilled(config: Any) -> Any:
    """The network of that shape, whose parameters are to be replaced."""
    if not isinstance(config, XLNetShape):
        return build_empty(config)
    with empty_parameters():
        return build_xlnet(config)


def headed(base: Model, model: Model, known: Mapping[str, Tensor], dropout: float) -> Any:
    """The body of `base` with the head of `model`, to be trained: of the head what is known, the rest drawn.

    As in `transformers`: normal with `initializer_range` (0.02), biases of zero.
    """
    config: Any = model.config
    network = _unfilled(config)
    body = {name: value for name, value in parameters_of(base.network).items() if not name.startswith("head.")}
    given, deviation = {**body, **known}, float(model.hf_config.get("initializer_range") or 0.02)
    for name, parameter in list(network.named_parameters()):
        if name in given:
            replace_parameter(network, name, given[name])
        elif name.endswith("bias"):
            replace_parameter(network, name, torch.zeros(parameter.shape))
        else:
            replace_parameter(network, name, torch.randn(parameter.shape) * deviation)
    if isinstance(config, XLNetShape):
        unfrozen(network, dropout)
        network.head.dropout.p = config.head_dropout
        return network
    rates = head_dropout(more_dropout(model.hf_config, dropout), config, model.hf_config, dropout)
    return trainable(network, dropout, rates)


def said_of_head(model: Model, what: str, known: Mapping[str, Tensor]) -> str:
    """What is said of the head, which is for `what`."""
    name = model.path.absolute().name
    if {"head.classes.weight", "head.outputs.0.weight"} & known.keys():
        return f"going on with the head of {name} for {what}"
    pooled = ", behind the pooler that was there" if "head.pool.weight" in known else ""
    left = "" if model.config.head == "none" else f", in the place of the one that it had ({model.config.head})"
    return f"a new head for {what} on {name}{pooled}{left}"


def about_run(
    request: TrainRequest,
    model: Model,
    dropout: float,
    amount: str,
    corpus: Mapping[str, Any],
    held: Mapping[str, Any],
    labels: Sequence[str] = (),
    called: str = "labels",
) -> dict[str, Any]:
    """What `training.json` and the card say of a run that learns a head on the model.

    Args:
        amount: what is trained on, in words.
        corpus: its size, and the keys of what is trained and validated on.
        held: what is said of a part held out of the training files; nothing where files are named.
        called: what the card calls the labels.
    """
    train = base_names(request.train)
    valid = train if held else base_names(request.valid)
    named = {called: ", ".join(labels)} if labels else {}
    return {
        "corpus": {"train": train, "valid": valid, **corpus, **held},
        **({"labels": [*labels]} if labels else {}),
        "material": {**named, "training data": f"{', '.join(train)}: {amount}"},
        "network": encoder_rows(model, dropout),
        "settings": RUN,
    }


def encoder_rows(model: Model, dropout: float) -> dict[str, str]:
    """What the model card says of the network."""
    if isinstance(model.config, XLNetShape):
        return xlnet_rows(model)
    config, stack = model.config, model.config.encoder
    assert stack
    rates = head_dropout(more_dropout(model.hf_config, dropout), config, model.hf_config, dropout)
    said = ", ".join(f"{name} {rate}" for name, rate in vars(rates).items() if rate)
    shape = f"d_model {stack.d_model}, d_ff {stack.d_ff}, {stack.n_heads} heads"
    return {
        "architecture": f"{config.family}: {stack.n_layers} layer{'s' * (stack.n_layers > 1)}, {shape}",
        **(
            {"vocabulary": f"{config.vocab_size:,} pieces of `{model.path.absolute().name}`"}
            if config.vocab_size
            else {}
        ),
        **({"dropout": f"beside {dropout}: {said}"} if said else {}),
    }
