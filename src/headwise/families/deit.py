"""DeiT (arXiv:2012.12877): ViT with a distillation token."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import vit
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import Keys

WITH_TEACHER = "DeiTForImageClassificationWithTeacher"
HEADS = {"DeiTForImageClassification": "image_class", WITH_TEACHER: "image_class", "DeiTModel": "none"}


def distilled(network: str) -> dict[str, str]:
    """Names of DeiT in addition to those of ViT, with the network's prefix."""
    return {f"{network}.embeddings.distillation_token": "+embeddings.prefix.1"}


NAMES = {**vit.names("deit"), **distilled("deit")}


def _head_names(config: NetworkConfig) -> dict[str, str]:
    """The head of the class token, or also that of the distillation token."""
    if config.n_class_states == 1:
        return {"classifier": "head.outputs.0"}
    return {"cls_classifier": "head.outputs.0", "distillation_classifier": "head.outputs.1"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    config = vit.network_from_hf("deit", Keys(values), HEADS, n_prefix=2)
    with_teacher = WITH_TEACHER in (values.get("architectures") or ())
    return replace(config, n_class_states=2 if with_teacher else 1)


FAMILY = Family(
    config_from_hf,
    NAMES,
    _head_names,
    prefix="deit.",
    heads=HEADS,
    ignored=r"^deit\.pooler\.|mask_token$",
    traits=Traits(head_classes="DeiT", dropout=FamilyDropout(paper=0.0)),
)
