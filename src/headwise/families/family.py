"""The parts of a family: conversion of its configuration in both directions, a table of names, and its traits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.config.network import NetworkConfig


def _none(config: NetworkConfig) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class FamilyDropout:
    """The dropout of a family in fine-tuning; keys are those of config.json, and rates hold where it has none.

    Keys of `heads` are heads of the network, with a key of config.json and its rate; None: that of the paper's dropout.
    Heads that are not listed have the paper's dropout before their last matrix, those for answers ("span") none.
    """

    paper: float = 0.1  # the rate on embeddings and on the output of sub-layers
    more: Mapping[str, float] = field(default_factory=dict)  # other rates
    heads: Mapping[str, tuple[str, float | None]] = field(
        default_factory=lambda: dict.fromkeys(("text_class", "token_class"), ("classifier_dropout", None))
    )
    pooled: bool = False  # a head for texts has it before its first matrix, too
    whole_attention: bool = False  # none on the output of self-attention
    whole_ffn: bool = False  # none on the output of the feed-forward network


@dataclass(frozen=True)
class Traits:
    """Facts about a family that its checkpoints do not state."""

    tokenizer: str | None = None  # the class where no file names one; "": tokenizer.json as it is; None: any
    misnames_tokenizer: bool = False  # published files name wrong classes
    head_classes: str = ""  # beginning of the classes with heads for texts or pictures in transformers; "": none
    dropout: FamilyDropout = FamilyDropout()
    language_codes: bool = False  # codes of languages are tokens around a text
    summarizes: bool = False  # published models write short outputs for long inputs
    restores: str = ""  # what it was pretrained to restore: "spans" or "texts" with noise


@dataclass(frozen=True)
class Family:
    """One family of checkpoints in the Hugging Face layout."""

    config_from_hf: Callable[[Mapping[str, Any]], NetworkConfig]  # from config.json
    names: Mapping[str, str]  # see `table`
    more_names: Callable[[NetworkConfig], Mapping[str, str]] = _none  # names that depend on the configuration
    prefix: str = ""  # of keys in a file; missing in files without a head
    ignored: str = "$^"  # keys in a file to ignore: regular expression
    heads: Mapping[str, str] = field(default_factory=dict)  # class in `architectures`: head, if the family has several
    same: Mapping[str, str] = field(default_factory=dict)  # keys that may repeat another one
    config_to_hf: Callable[[NetworkConfig], dict[str, Any]] | None = None  # for export
    overflows: bool = False  # activations of some checkpoints exceed 65504, the largest float16
    traits: Traits = Traits()

    def table(self, config: NetworkConfig) -> dict[str, str]:
        """All names of one network."""
        return {**self.names, **self.more_names(config)}
