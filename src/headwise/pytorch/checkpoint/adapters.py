"""Low-rank adapters (LoRA) in the layout of `peft`, merged into the weights of the pretrained model that they change.

`adapter_config.json` has rank, layers and the folder of the model, `adapter_model.safetensors` the matrices by the
names that layers have in the file of the model. Folders that `headwise train` writes contain the files of tokenizer
and generation, too; for folders of `peft` those of the model are used.

See `adapter_settings` for settings, `adapter_parts` for one layer, `pytorch/training/low_rank.py` for training of
adapters and `adapter_layout` for writing such a folder.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headwise.errors import UserError
from headwise.families.family import Family
from headwise.families.registry import FAMILIES
from headwise.pytorch.checkpoint.adapter_parts import split_parts
from headwise.pytorch.checkpoint.tensors import _mapped, _unpickled
from headwise.runtime.checkpoint.adapter_folders import PICKLED_MATRICES, base_of, home_of, matrices_file
from headwise.runtime.checkpoint.adapter_settings import read_adapter_settings
from headwise.runtime.checkpoint.layout import CONFIG, adapters_in, read_json, weight_files
from headwise.runtime.formats.matching import tied_keys, with_todays_names


def adapted_tensors(adapters: Sequence[Path]) -> dict[str, Tensor]:
    """The weights of the model of all `adapters`, with these merged."""
    base, *others = [base_of(folder) for folder in adapters]
    for folder, other in zip(adapters[1:], others, strict=True):
        if other.resolve() != base.resolve():
            raise UserError(f"{folder}: is for {other}, {adapters[0]} for {base}: adapters of one model can be added")
    values = read_json(home_of(base) / CONFIG)
    if "family" in values:
        raise UserError(f"{adapters[0]}: is for {base}, which was imported; adapters are for the layout it came in")
    tensors, tied = open_tensors(base), {}
    if family := FAMILIES.get(str(values.get("model_type"))):
        tensors = with_todays_names(tensors, family)
        tied = _repeat_tied(tensors, tied_keys(family, family.config_from_hf(values)))
        own = read_json(adapters[0] / CONFIG) if (adapters[0] / CONFIG).is_file() else values
        if own.get("model_type") == values["model_type"]:
            others = _head_keys(family, values) - _head_keys(family, own)
            tensors = {key: tensor for key, tensor in tensors.items() if not others & {key, key.rpartition(".")[0]}}
            tied = {again: key for again, key in tied.items() if again in tensors}
    start = dict(tensors)
    for folder in adapters:
        _add(tensors, folder, start, tied)
    return tensors


def _repeat_tied(tensors: dict[str, Tensor], tied: Mapping[str, str]) -> dict[str, str]:
    """Add repeated tensors to `tensors`, so that adapters can change each by its own name.

    Returns those of `tied`, which has the key of the first one for each, that are equal to it in this file.
    """
    for again, key in tied.items():
        if key not in tensors and again in tensors:
            tensors[key] = tensors[again]
    found = {
        again: key
        for again, key in tied.items()
        if key in tensors and (again not in tensors or torch.equal(tensors[again], tensors[key]))
    }
    tensors.update({again: tensors[key] for again, key in found.items()})
    return found


def _head_keys(family: Family, values: Mapping[str, Any]) -> set[str]:
    """The keys of a head in a file, with or without an output matrix of its own."""
    config = family.config_from_hf(values)
    tables = (family.table(config), family.table(replace(config, tie_head=False)))
    return {key for table in tables for key, name in table.items() if name.startswith("head.")}


def _add(tensors: dict[str, Tensor], folder: Path, start: Mapping[str, Tensor], tied: Mapping[str, str]) -> None:
    """Merge the adapters of `folder`: add to `tensors` how they change those of the model, `start`.

    `tied` has repeated embeddings, with the key of the first one. As in `peft`, adapters and copies of one leave the
    others as they are, unless all are to stay tied; trained tokens of the encoder's, and a matrix that is stored
    without being adapted, change all of them.
    """
    settings = read_adapter_settings(folder)
    whole, layers = split_parts(_matrices(folder), settings, matrices_file(folder))
    start, transposed = dict(start), _transposed(folder)
    for name, tensor in whole.items():
        key = _key_of(name.replace(".base_layer.", "."), start) or name
        for one in [key] if settings.is_separate(name) else _all_of(key, tied):
            if one in tensors and tensors[one] is not start.get(one) and not torch.equal(tensors[one], tensor):
                raise UserError(f"{folder}: trained {name} in full, which the adapters before it change, too")
            tensors[one] = start[one] = tensor
    keys = [_existing(f"{layer.name}.weight", start, folder) for layer in layers]
    for key, layer in zip(keys, layers, strict=True):
        turned = any(f".{one}".endswith(f".{_numberless(key)}") for one in transposed)
        new = layer.merged(start[key], turned)
        first = key not in tied or key.endswith("encoder.embed_tokens.weight")
        together = first and (settings.tied or "tokens" in layer.parts)
        for one in [key, *(other for other in _all_of(key, tied) if together and other not in keys)]:
            tensors[one] = new if tensors[one] is start[one] else tensors[one] + (new - start[one].float())
        if "bias" in layer.parts:
            bias = _existing(f"{layer.name}.bias", start, folder)
            tensors[bias] = tensors[bias] + (layer.biased(start[bias]) - start[bias].float())


def _all_of(key: str, tied: Mapping[str, str]) -> list[str]:
    """The keys of all tensors that are tied to one; of any other, its own."""
    first = tied.get(key, key)
    return [first, *(again for again, one in tied.items() if one == first)]


def _transposed(folder: Path) -> list[str]:
    """The layers that the file of the model has transposed (Conv1D of GPT-2); like `peft`, by layer, whatever
    `fan_in_fan_out` says.
    """
    values = read_json(home_of(base_of(folder)) / CONFIG)
    if (family := FAMILIES.get(str(values.get("model_type")))) is None:
        return []
    return [key for key, ours in family.table(family.config_from_hf(values)).items() if ours.startswith("^")]


def _numberless(layer: str) -> str:
    """A key of a file in the form of the tables.

    >>> _numberless("h.11.attn.c_attn.weight")
    'h.{i}.attn.c_attn'
    """
    return re.sub(r"\.\d+\.", ".{i}.", layer.removesuffix(".weight"))


def _matrices(folder: Path) -> dict[str, Tensor]:
    path = matrices_file(folder)
    if path.name == PICKLED_MATRICES:
        return _unpickled(path)
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: cannot be read as safetensors ({reason})") from None


def _existing(path: str, tensors: Mapping[str, Tensor], folder: Path) -> str:
    """The key of a tensor that the model must have."""
    if found := _key_of(path, tensors):
        return found
    raise UserError(f"{matrices_file(folder)}: {path}: the model in {base_of(folder)} has no such layer")


def _key_of(path: str, tensors: Mapping[str, Tensor]) -> str:
    """The key of a tensor, "" without one; the first word is missing where the network has no head."""
    if path in tensors:
        return path
    found = [key for key in tensors if key.endswith(f".{path}") or path.endswith(f".{key}")]
    return found[0] if len(found) == 1 else ""


def open_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder by its key, mapped into memory; for adapters, the merged weights of their model."""
    if adapters := adapters_in(folder):
        return adapted_tensors(adapters)
    files = weight_files(folder)
    read = _mapped if files[0].suffix == ".safetensors" else _unpickled
    return {key: tensor for file in files for key, tensor in read(file).items()}
