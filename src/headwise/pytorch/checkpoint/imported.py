"""Pretrained models: folders in the Hugging Face layout, and folders that `headwise import` writes.

An imported folder has `config.json` with the axes (`family`) and the original configuration (`hf`), `model.safetensors`
with parameters under our names, `unread.safetensors` with tensors that the network does not use (BERT's pooler), and
the files of the tokenizer and of sentence-transformers unchanged.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from headwise.config.network import NetworkConfig, network_config
from headwise.core.build import build_empty, replace_parameter, tie
from headwise.errors import UserError
from headwise.pytorch.checkpoint.adapters import open_tensors
from headwise.pytorch.checkpoint.ctranslate2_folder import ForeignModel
from headwise.pytorch.checkpoint.precision import dtype_for, refuse_quantised, widest
from headwise.pytorch.checkpoint.published import ReadCheckpoint, read_checkpoint, unread_tensors
from headwise.pytorch.checkpoint.xlnet import read_xlnet
from headwise.runtime.checkpoint.adapter_folders import folders_of, home_of
from headwise.runtime.checkpoint.companions import FORMAT, copy_companions, copy_file
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.layout import CONFIG, UNREAD, WEIGHTS, read_json
from headwise.runtime.checkpoint.manifest import Digests, seal
from headwise.runtime.checkpoint.modules import module_files
from headwise.runtime.checkpoint.trained import write_file, write_json
from headwise.runtime.checkpoint.writing import write_atomically
from headwise.runtime.tokenizers.vocabulary import read_vocabulary


def read_pretrained(folder: Path, device: str, dtype: str, ignore_keys: Collection[str] = ()) -> Folder:
    """A model in the Hugging Face layout, or an imported one; arguments as for `read_folder` and `read_checkpoint`."""
    digests = [Digests(part) for part in folders_of(folder)]
    for part in digests:
        part.begin(part.names)
    home = home_of(folder)
    values = read_json(home / CONFIG)
    numbers = None if dtype == "file" else dtype_for(dtype, torch.device(device))
    if ignore_keys and ("family" in values or values.get("model_type") == "xlnet"):
        raise UserError(f"{home / CONFIG}: keys are ignored when a checkpoint in the Hugging Face layout is read")
    if values.get("model_type") == "xlnet":
        found = read_xlnet(folder, values, numbers)
    else:
        found = (
            _read_ours(folder, values, numbers)
            if "family" in values
            else read_checkpoint(folder, numbers, home, ignore_keys)
        )
    for part in digests:
        part.check(part.names)
    found.network.to(device)
    return Folder(home, found.config, found.hf_config, device, found, lambda: read_vocabulary(home, found.hf_config))


def write_imported(folder: Path, model: Folder) -> None:
    """Write an imported model; `UserError` if the folder exists and is not empty."""
    _ = module_files(model.path)  # a UserError before anything is written
    write_atomically(folder, lambda draft: _write_imported(draft, model))


def _write_imported(folder: Path, model: Folder) -> None:
    folder.mkdir()
    tensors = {
        name: parameter.detach().cpu().contiguous().clone() for name, parameter in model.network.named_parameters()
    }
    if unread := unread_tensors(model.path):
        write_file(folder / UNREAD, lambda path: save_file(unread, path, {"format": "pt"}))
    copy_companions(model.path, folder)
    _write_network(folder, tensors, model.config, model.about)


def write_foreign(folder: Path, model: ForeignModel) -> None:
    """Write a model of another program; `UserError` if the folder exists and is not empty."""
    write_atomically(folder, lambda draft: _write_foreign(draft, model))


def _write_foreign(folder: Path, model: ForeignModel) -> None:
    folder.mkdir()
    for name, tokens in model.lists.items():
        write_json(folder / name, tokens)
    for name, path in model.copies.items():
        copy_file(path, folder / name)
    _write_network(folder, model.tensors, model.config, model.about)


def _write_network(
    folder: Path, tensors: Mapping[str, torch.Tensor], config: NetworkConfig, about: Mapping[str, Any]
) -> None:
    write_file(folder / WEIGHTS, lambda path: save_file(dict(tensors), path, {"format": "pt"}))
    write_json(folder / CONFIG, {"format": FORMAT, "family": config.as_dict(), "hf": about})
    seal(folder)


def _read_ours(folder: Path, values: dict[str, Any], dtype: torch.dtype | None) -> ReadCheckpoint:
    if values.get("format") != FORMAT:
        raise UserError(f"{folder / CONFIG}: format {values.get('format')!r} is not {FORMAT}; another version made it")
    config = network_config(values["family"], str(folder / CONFIG))
    try:
        network = build_empty(config)
    except (ArithmeticError, AssertionError, LookupError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{folder / CONFIG}: family: there is no such network ({type(error).__name__}: {reason})"
        ) from None
    tensors, own = open_tensors(folder), dict(network.named_parameters())
    refuse_quantised(folder, tensors)
    wrong = [name for name in {*own, *tensors} if name not in own or name not in tensors]
    wrong += [name for name in own if name in tensors and own[name].shape != tensors[name].shape]
    if wrong:
        raise UserError(f"{folder / WEIGHTS} does not fit its {CONFIG}: {', '.join(sorted(wrong)[:20])}")
    dtype = dtype or widest(tensors.values())
    for name, tensor in tensors.items():
        replace_parameter(network, name, tensor.to(dtype))
    tie(network, config)
    return ReadCheckpoint(network, config, values.get("hf", {}))
