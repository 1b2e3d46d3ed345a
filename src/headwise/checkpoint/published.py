"""Read a folder in the Hugging Face layout: `config.json` and the tensors beside it.

Tensors are mapped into memory, not copied: parameters are views of the file, unless the precision differs
(`precision`). Everything that does not fit is listed in one `UserError`. Not here:
tokenizers (`vocabulary`), writing (`write`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.checkpoint.adapters import open_tensors
from headwise.checkpoint.layout import CONFIG, UNREAD, read_json
from headwise.checkpoint.precision import READABLE, name_of, refuse_quantised, refuse_quantised_config, widest
from headwise.checkpoint.tensors import _mapped
from headwise.errors import UserError, unknown
from headwise.families.family import Family
from headwise.families.keys import Keys
from headwise.families.registry import FAMILIES
from headwise.families.table import Entry, entries
from headwise.network.build import FamilyNetwork, build_empty, tie_head
from headwise.network.config import NetworkConfig
from headwise.network.parameters import replace_parameter


@dataclass(frozen=True)
class ReadCheckpoint:
    """A pretrained network with its configuration, read and checked."""

    network: Any  # a `FamilyNetwork`, or an XLNet; in evaluation mode
    config: Any  # its `NetworkConfig`, or `XLNetShape`
    hf_config: dict[str, Any]  # the original config.json


def read_checkpoint(folder: Path, dtype: torch.dtype | None = None, home: Path | None = None) -> ReadCheckpoint:
    """The network of `folder` with its weights; `UserError` lists everything that does not fit.

    `dtype` is its precision; None = that of the file, the widest of several. Its config.json is in `home`, if that is
    another folder.
    """
    values = read_json((home or folder) / CONFIG)
    refuse_quantised_config(folder, values)
    try:
        kind = _kind_of(values)
        config = FAMILIES[kind].config_from_hf(values)
    except UserError as error:
        raise UserError(f"{folder}/{error}") from None
    tensors = open_tensors(folder)
    network, config = _assembled(FAMILIES[kind], config, tensors, folder, dtype)
    return ReadCheckpoint(network, config, values)


def _kind_of(values: Mapping[str, Any]) -> str:
    """The family of a configuration; `UserError` if it is unknown."""
    kind = Keys(values).word("model_type", default="")
    if not kind:
        raise UserError(
            f'{CONFIG}: has no model_type, which names the family; if you know it, add it to the file: "model_type": '
            f"one of {', '.join(sorted(FAMILIES))}"
        )
    if kind not in FAMILIES:
        raise UserError(f"{CONFIG}: {unknown('model_type', kind[:60], FAMILIES)}")
    return kind


def _assembled(
    family: Family, config: NetworkConfig, tensors: dict[str, Tensor], folder: Path, dtype: torch.dtype | None
) -> tuple[FamilyNetwork, NetworkConfig]:
    refuse_quantised(folder, {key: tensor for key, tensor in tensors.items() if not re.search(family.ignored, key)})
    tensors = _with_todays_names(tensors, family)
    config = _as_saved(config, tensors, family)
    tensors = _without_repeats(tensors, family, config)
    network = build_empty(config)
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    wanted = entries(family.table(config), config, shapes)
    _refuse_misfits(wanted, tensors, shapes, family.ignored, str(folder))
    dtype = dtype or widest(tensors[entry.key] for entry in wanted)
    for entry in wanted:
        for name, tensor in entry.to_own(tensors[entry.key].to(dtype)).items():
            replace_parameter(network, name, tensor)
    tie_head(network, config)
    return network, config


def file_shapes(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a file with this config.json; none for an unknown family."""
    family = FAMILIES.get(str(values.get("model_type")))
    if not family:
        return {}
    config = family.config_from_hf(values)
    shapes = {name: tuple(parameter.shape) for name, parameter in build_empty(config).named_parameters()}
    return {entry.key: entry.file_shape(shapes) for entry in entries(family.table(config), config, shapes)}


# --- Keys of files ---


def _with_todays_names(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Keys in the current format: with the prefix of the network, norms with weight and bias."""
    prefix = "" if any(key.startswith(family.prefix) for key in tensors) else family.prefix
    renamed = {prefix + re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key)): key for key in tensors}
    return {new: tensors[old] for new, old in renamed.items()}


def _as_saved(config: NetworkConfig, tensors: Mapping[str, Tensor], family: Family) -> NetworkConfig:
    """The configuration corrected by the file: matrices that are not shared there are separate, and a bias of logits
    that the file lacks does not exist (networks saved without their head are loaded with it).
    """
    repeated = [(repeat, key) for repeat, key in family.same.items() if "embed_tokens" in repeat]
    if any(_differ(tensors, repeat, key) for repeat, key in repeated):
        config = replace(config, share_embeddings=False)
    head = _keys_of(family, config, "head.output")
    embeddings = [_keys_of(family, config, f"{front}embeddings.tokens") for front in ("tgt_", "src_", "")]
    embedding = next(filter(None, embeddings), "")
    if config.tie_head and _differ(tensors, head, embedding):
        config = replace(config, tie_head=False)
    if config.head_bias and not any(key.endswith("logits_bias") for key in tensors):
        config = replace(config, head_bias=False)
    return config


def _keys_of(family: Family, config: NetworkConfig, name: str) -> str:
    """The key in a file of the matrix called `name`; "" if the family has none."""
    for key, ours in family.table(replace(config, tie_head=False)).items():
        if ours.removesuffix(".weight") == name:
            return key.removesuffix(".weight") + ".weight"
    return ""


def _differ(tensors: Mapping[str, Tensor], one: str, other: str) -> bool:
    """Whether both exist and differ."""
    if one not in tensors or other not in tensors:
        return False
    first, second = tensors[one], tensors[other]
    return first.dtype != second.dtype or not torch.equal(first, second)


def _without_repeats(tensors: dict[str, Tensor], family: Family, config: NetworkConfig) -> dict[str, Tensor]:
    """Without tensors that repeat another one; a repetition without its original takes its place."""
    table, kept = family.table(config), dict(tensors)
    for repeat, key in family.same.items():
        if repeat in kept and repeat not in table and repeat.rpartition(".")[0] not in table:
            kept.setdefault(key, kept.pop(repeat))
    if config.tie_head:
        kept.pop(_keys_of(family, config, "head.output"), None)
    return kept


def _refuse_misfits(
    wanted: list[Entry], tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], ignored: str, origin: str
) -> None:
    """List every tensor that is missing, unexpected, of the wrong shape or not floating-point, in one error."""
    keys = {entry.key: entry.file_shape(shapes) for entry in wanted}
    problems = [f"missing {key}" for key in keys if key not in tensors]
    problems += [f"unexpected {key}" for key in tensors if key not in keys and not re.search(ignored, key)]
    problems += [
        f"{key} is {list(tensors[key].shape)}, should be {list(shape)}"
        for key, shape in keys.items()
        if key in tensors and tuple(tensors[key].shape) != shape
    ]
    strange = [key for key in keys if key in tensors and tensors[key].dtype not in READABLE]
    problems += [f"{key} is {name_of(tensors[key].dtype)}, should be {name_of(torch.float32)}" for key in strange]
    if problems:
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UserError(f"{origin}: does not fit its {CONFIG}: {'; '.join(problems[:20])}{more}")


def unread_tensors(folder: Path) -> dict[str, Tensor]:
    """Tensors of `folder` that the network does not use, such as a pooler, by the keys of the family's files."""
    values = read_json(folder / CONFIG)
    if "family" in values:
        return _mapped(folder / UNREAD) if (folder / UNREAD).is_file() else {}
    family = FAMILIES[_kind_of(values)]
    tensors = _with_todays_names(open_tensors(folder), family)
    return {key: tensor.clone() for key, tensor in tensors.items() if re.search(family.ignored, key)}
