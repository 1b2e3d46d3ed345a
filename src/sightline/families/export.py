"""Write a network back into the Hugging Face layout, through the table it was read with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from sightline.families.layout import CONFIG, WEIGHTS
from sightline.families.registry import FAMILIES
from sightline.families.table import entries
from sightline.network.axes import NetworkConfig


def write_checkpoint(folder: Path, network: nn.Module, config: NetworkConfig, hf_config: Mapping[str, Any]) -> None:
    """`config.json` and `model.safetensors` that transformers loads as the same network.

    `hf_config` is the configuration the network came with; its numbers must be those of `config`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: parameter.detach() for name, parameter in network.named_parameters()}
    wanted = entries(FAMILIES[config.family].table(config), config, {name: tuple(t.shape) for name, t in own.items()})
    tensors = {entry.key: entry.to_file(own).cpu() for entry in wanted}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(dict(hf_config), indent=2) + "\n", encoding="utf-8")
