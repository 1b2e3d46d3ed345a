"""Low-rank adapters (LoRA) in the layout of `peft`, merged into the weights of the pretrained model that they change.

`adapter_config.json` has rank, layers and the folder of the model, `adapter_model.safetensors` the matrices by the
names that layers have in the file of the model. Folders that `headwise train` writes contain the files of tokenizer
and generation, too; for folders of `peft` those of the model are used.

Not here: training of adapters (`network/low_rank.py`), and writing such a folder (`adapter_layout`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headwise.checkpoint.adapter_folders import MATRICES, base_of, home_of
from headwise.checkpoint.layout import ADAPTER, CONFIG, adapters_in, read_json, weight_files
from headwise.checkpoint.matching import with_todays_names
from headwise.checkpoint.tensors import _mapped, _unpickled
from headwise.errors import UserError
from headwise.families.family import Family
from headwise.families.registry import FAMILIES

PREFIX = "base_model.model."  # of every key
REFUSED = ("use_dora", "alpha_pattern", "layer_replication", "target_parameters", "trainable_token_indices")


def adapted_tensors(adapters: Sequence[Path]) -> dict[str, Tensor]:
    """The weights of the model of all `adapters`, with these merged."""
    base, *others = [base_of(folder) for folder in adapters]
    for folder, other in zip(adapters[1:], others, strict=True):
        if other.resolve() != base.resolve():
            raise UserError(f"{folder}: is for {other}, {adapters[0]} for {base}: adapters of one model can be added")
    values = read_json(home_of(base) / CONFIG)
    if "family" in values:
        raise UserError(f"{adapters[0]}: is for {base}, which was imported; adapters are for the layout it came in")
    tensors = open_tensors(base)
    if family := FAMILIES.get(str(values.get("model_type"))):
        tensors = with_todays_names(tensors, family)
        own = read_json(adapters[0] / CONFIG) if (adapters[0] / CONFIG).is_file() else values
        if own.get("model_type") == values["model_type"]:
            others = _head_keys(family, values) - _head_keys(family, own)
            tensors = {key: tensor for key, tensor in tensors.items() if not others & {key, key.rpartition(".")[0]}}
    for folder in adapters:
        _add(tensors, folder)
    return tensors


def _head_keys(family: Family, values: Mapping[str, Any]) -> set[str]:
    """The keys of a head in a file, with or without an output matrix of its own."""
    config = family.config_from_hf(values)
    tables = (family.table(config), family.table(replace(config, tie_head=False)))
    return {key for table in tables for key, name in table.items() if name.startswith("head.")}


def _add(tensors: dict[str, Tensor], folder: Path) -> None:
    values, matrices = read_json(folder / ADAPTER), _matrices(folder)
    _check(values, matrices, folder)
    transposed = _transposed(folder)
    for name, tensor in matrices.items():
        path = name.removeprefix(PREFIX)
        if path.endswith(".lora_B.weight"):
            a = matrices[name.replace(".lora_B.", ".lora_A.")]
            layer = _key_of(path.removesuffix(".lora_B.weight") + ".weight", tensors, folder)
            added = _scale(values, len(a)) * (tensor.float() @ a.float())
            weight = tensors[layer].float()
            turned = any(f".{key}".endswith(f".{_numberless(layer)}") for key in transposed)
            tensors[layer] = weight + (added.t() if turned else added)
        elif not path.endswith(".lora_A.weight"):  # a part that was fully trained, such as a head
            tensors[path.replace(".modules_to_save.", ".")] = tensor


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
    try:
        return load_file(folder / MATRICES)
    except (OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{folder / MATRICES}: cannot be read as safetensors ({reason})") from None


def _scale(values: Mapping[str, Any], rank: int) -> float:
    return values["lora_alpha"] / (rank**0.5 if values.get("use_rslora") else rank)


def _check(values: Mapping[str, Any], matrices: Mapping[str, Tensor], folder: Path) -> None:
    """`UserError` for unsupported adapters."""
    kind = values.get("peft_type")
    if kind != "LORA" or not isinstance(values.get("lora_alpha"), int | float):
        raise UserError(f"{folder / ADAPTER}: peft_type = {kind}: only LORA, with its lora_alpha, is understood")
    strange = [name for name in REFUSED if values.get(name)]
    strange += ["bias"] * (values.get("bias", "none") != "none")
    if strange:
        raise UserError(
            f"{folder / ADAPTER}: {strange[0]} = {values[strange[0]]}: is not understood; merge it with peft"
        )
    wrong = [name for name in matrices if not name.startswith(PREFIX) or "lora_embedding" in name]
    wrong += [name for name in matrices if name.replace(".lora_B.", ".lora_A.") not in matrices]
    if wrong or not matrices:
        raise UserError(f"{folder / MATRICES}: {(wrong or ['nothing'])[0]}: is not understood; merge it with peft")


def _key_of(path: str, tensors: Mapping[str, Tensor], folder: Path) -> str:
    """The tensor of a layer; its first word is missing in files and adapters of networks without a head."""
    found = [key for key in tensors if key == path or key.endswith(f".{path}") or path.endswith(f".{key}")]
    if len(found) != 1:
        raise UserError(f"{folder / MATRICES}: {path}: the model in {base_of(folder)} has no such layer")
    return found[0]


def open_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder by its key, mapped into memory; for adapters, the merged weights of their model."""
    if adapters := adapters_in(folder):
        return adapted_tensors(adapters)
    files = weight_files(folder)
    read = _mapped if files[0].suffix == ".safetensors" else _unpickled
    return {key: tensor for file in files for key, tensor in read(file).items()}
