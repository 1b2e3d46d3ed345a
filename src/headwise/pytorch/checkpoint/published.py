"""Read a folder in the Hugging Face layout: `config.json` and the tensors beside it.

Tensors are mapped into memory, not copied: parameters are views of the file, unless the precision differs
(`precision`). Everything that does not fit is listed in one `UserError`. See `vocabulary` for tokenizers and `write`
for writing such files.
"""

import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.config.network import NetworkConfig
from headwise.core.build import build_empty, replace_parameter, tie
from headwise.families.registry import FAMILIES
from headwise.families.table import entries
from headwise.pytorch.checkpoint.adapters import open_tensors
from headwise.pytorch.checkpoint.precision import name_of, refuse_quantised, refuse_quantised_config, widest
from headwise.pytorch.checkpoint.tensors import _mapped
from headwise.runtime.checkpoint.identify import complete_config, names_network
from headwise.runtime.checkpoint.layout import CONFIG, UNREAD, read_json
from headwise.runtime.formats.matching import (
    TensorsOf,
    checkpoint_config,
    family_of,
    match_tensors,
    with_todays_names,
    without_keys,
)


@dataclass(frozen=True)
class ReadCheckpoint:
    """A pretrained network with its configuration, read and checked."""

    network: Any  # a `FamilyNetwork`, or an XLNet; in evaluation mode
    config: Any  # its `NetworkConfig`, or `XLNetShape`
    hf_config: dict[str, Any]  # the original config.json


def read_checkpoint(
    folder: Path, dtype: torch.dtype | None = None, home: Path | None = None, ignore_keys: Collection[str] = ()
) -> ReadCheckpoint:
    """The network of `folder` with its weights; `UserError` lists everything that does not fit.

    `dtype` is its precision; None = that of the file, the widest of several. Its config.json is in `home`, if that is
    another folder. `ignore_keys` are unknown keys in it to ignore.
    """
    values = read_json((home or folder) / CONFIG)
    if ignore_keys:
        values = without_keys(values, ignore_keys, home or folder)
    refuse_quantised_config(folder, values)
    tensors = None
    if not names_network(values):
        tensors = open_tensors(folder)
        values = complete_config(values, _torch_tensors(tensors), _shapes, home or folder)
    family, config = checkpoint_config(values, folder)
    tensors = open_tensors(folder) if tensors is None else tensors
    refuse_quantised(folder, {key: tensor for key, tensor in tensors.items() if not re.search(family.ignored, key)})
    fitting = match_tensors(family, config, _torch_tensors(tensors), _shapes, str(folder))
    for note in fitting.notes:
        warnings.warn(note, stacklevel=2)
    network = build_empty(fitting.config)
    dtype = dtype or widest(tensor for _, tensor in fitting.entries)
    for entry, tensor in fitting.entries:
        for name, value in entry.to_own(tensor.to(dtype)).items():
            replace_parameter(network, name, value)
    tie(network, fitting.config)
    return ReadCheckpoint(network, fitting.config, values)


def _torch_tensors(tensors: Mapping[str, Tensor]) -> TensorsOf[Tensor]:
    return TensorsOf(tensors, lambda tensor: name_of(tensor.dtype), torch.equal)


def _shapes(config: NetworkConfig) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in build_empty(config).named_parameters()}


def file_shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a file with this config.json; none for an unknown family."""
    family = FAMILIES.get(str(values.get("model_type")))
    if not family:
        return {}
    config = family.config_from_hf(values)
    shapes = _shapes(config)
    return {entry.key: entry.file_shape(shapes) for entry in entries(family.table(config), config, shapes)}


def unread_tensors(folder: Path) -> dict[str, Tensor]:
    """Tensors of `folder` that the network does not use, such as a pooler, by the keys of the family's files."""
    values = read_json(folder / CONFIG)
    if "family" in values:
        return _mapped(folder / UNREAD) if (folder / UNREAD).is_file() else {}
    tensors = open_tensors(folder)
    if not names_network(values):
        values = complete_config(values, _torch_tensors(tensors), _shapes, folder)
    family = family_of(values)
    tensors = with_todays_names(tensors, family)
    return {key: tensor.clone() for key, tensor in tensors.items() if re.search(family.ignored, key)}
