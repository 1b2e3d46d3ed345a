"""mBART (arXiv:2001.08210): BART for many languages, with pre-norm layers with a final norm."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bart
from headwise.families.family import Traits
from headwise.families.keys import Keys

HEADS = {"MBartForConditionalGeneration": "language", "MBartModel": "language"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    k.only("normalize_before", True)
    k.only("add_final_layer_norm", True)
    return bart.network_from_hf("mbart", k, HEADS, norm_position="pre")


FAMILY = replace(
    bart.FAMILY,
    config_from_hf=config_from_hf,
    traits=Traits("MBartTokenizer", language_codes=True, restores="texts"),
)
