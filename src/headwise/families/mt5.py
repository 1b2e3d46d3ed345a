"""mT5 (arXiv:2010.11934): T5 v1.1 for a hundred languages."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import t5
from headwise.families.keys import Keys


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    return t5.network_from_hf("mt5", Keys({"feed_forward_proj": "gated-gelu", **values}), scaled=False)


FAMILY = replace(t5.FAMILY, config_from_hf=config_from_hf)
