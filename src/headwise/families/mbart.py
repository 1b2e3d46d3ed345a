"""mBART (arXiv:2001.08210): BART for many languages, with norms before the sub-layers and one after the last."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.families import bart
from headwise.families.keys import Keys
from headwise.network.config import NetworkConfig

HEADS = {"MBartForConditionalGeneration": "language", "MBartModel": "language"}


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """Our axes of a `config.json`; `UserError` for a key that is not understood."""
    k = Keys(values)
    k.only("normalize_before", True)
    k.only("add_final_layer_norm", True)
    return bart.network_from_hf("mbart", k, HEADS, norm_position="pre")


FAMILY = replace(bart.FAMILY, config_from_hf=config_from_hf)
