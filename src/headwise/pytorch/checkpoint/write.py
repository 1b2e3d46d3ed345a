"""Write a network back into the Hugging Face layout, through the table it was read with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from headwise.config.network import NetworkConfig
from headwise.families.registry import FAMILIES
from headwise.families.table import entries
from headwise.pytorch.checkpoint.tensors import file_tensor
from headwise.runtime.checkpoint.layout import CONFIG, WEIGHTS
from headwise.runtime.checkpoint.trained import write_file, write_json

SILENT = ("family", "dropout", "head_bias")  # not in a config.json: the bias is in the file or not


def write_checkpoint(
    folder: Path,
    network: nn.Module,
    config: NetworkConfig,
    hf_config: Mapping[str, Any],
    unread: Mapping[str, Tensor] | None = None,
) -> None:
    """Write `config.json` and `model.safetensors`, which transformers loads as the same network.

    `hf_config` is the original configuration and must match `config`. `unread` are tensors of the checkpoint that the
    network does not use, by the keys of the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: parameter.detach() for name, parameter in network.named_parameters()}
    write_files(folder, {**(unread or {}), **file_tensors(own, config)}, hf_config)


def write_files(folder: Path, tensors: Mapping[str, Tensor], hf_config: Mapping[str, Any]) -> None:
    """Write the two files of the layout: tensors by the keys of the file, and config.json."""
    write_file(folder / WEIGHTS, lambda path: save_file(dict(tensors), path, {"format": "pt"}))
    write_json(folder / CONFIG, hf_config)


def file_tensors(parameters: Mapping[str, Tensor], config: NetworkConfig) -> dict[str, Tensor]:
    """Parameters in the format and by the keys of the family's files; shared ones once."""
    shapes = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    wanted = entries(FAMILIES[config.family].table(config), config, shapes)
    return {entry.key: file_tensor(entry, parameters).cpu() for entry in wanted}


def config_to_hf(config: NetworkConfig) -> tuple[dict[str, Any], list[str]]:
    """The family's config.json for these axes, and the axes that it cannot express."""
    family = FAMILIES[config.family]
    assert family.config_to_hf, f"{config.family} has no way back"
    values = family.config_to_hf(config)
    wanted, found = _axes(config.as_dict()), _axes(family.config_from_hf(values).as_dict())
    return values, [f"{name} = {value!r}" for name, value in wanted.items() if found.get(name) != value]


def _axes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flattened, with the names of stacks as prefixes.

    >>> _axes({"vocab_size": 7, "encoder": {"d_model": 8, "dropout": 0.1}})
    {'vocab_size': 7, 'encoder.d_model': 8}
    """
    flat = {name: value for name, value in values.items() if not isinstance(value, dict)}
    stacks = {name: value for name, value in values.items() if isinstance(value, dict)}
    flat |= {f"{stack}.{name}": value for stack, axes in stacks.items() for name, value in _axes(axes).items()}
    return {name: value for name, value in flat.items() if name not in SILENT}
