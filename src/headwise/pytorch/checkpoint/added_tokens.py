"""Add tokens to the vocabulary of a pretrained model, such as the code of a new language.

The row of a new token, in every matrix and bias with rows for tokens, is a copy of another token's row, or the mean of
all. See `pytorch/tasks/initial_model.py` for training the model.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

from headwise.errors import UserError
from headwise.pytorch.checkpoint.adapters import open_tensors
from headwise.pytorch.checkpoint.published import file_shapes
from headwise.runtime.checkpoint.companions import copy_companions
from headwise.runtime.checkpoint.layout import CONFIG, WEIGHTS, read_json
from headwise.runtime.checkpoint.manifest import check_manifest, seal
from headwise.runtime.checkpoint.read import read_folder
from headwise.runtime.checkpoint.trained import write_file, write_json
from headwise.runtime.tokenizers.vocabulary import SETTINGS, library_tokenizer, read_vocabulary

LISTS = ("additional_special_tokens", "extra_special_tokens")  # of special tokens, in the files of a tokenizer


def write_with_added_tokens(folder: Path, tokens: Mapping[str, str], out: Path) -> dict[str, int]:
    """Write the model of `folder` with new tokens to `out`; returns their ids.

    Args:
        tokens: for each new token the one whose row it starts with; "" = the mean of all.

    Raises:
        UserError: a token exists already, one to copy does not, or the kind of vocabulary cannot be extended.
    """
    check_manifest(folder)
    config = read_json(folder / CONFIG)
    vocabulary = read_vocabulary(folder, config)
    for token, origin in tokens.items():
        if vocabulary.id_of(token) is not None:
            raise UserError(f"--special {token}: {folder} has this token already; leave it out")
        if origin and vocabulary.id_of(origin) is None:
            raise UserError(f"--special {token}={origin}: {folder} has no token {origin} to copy")
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    copy_companions(folder, draft)
    ids = _add_to_vocabulary(draft, [*tokens])
    origins = {ids[token]: vocabulary.id_of(origin) if origin else None for token, origin in tokens.items()}
    _write(folder, draft, config, origins)
    shutil.rmtree(out, ignore_errors=True)
    draft.rename(out)
    return ids


def _write(folder: Path, draft: Path, config: Mapping[str, Any], origins: Mapping[int, int | None]) -> None:
    """Write weights and config.json, and read them again to check the size of the vocabulary."""
    size = (config["decoder"] if _has_decoder_config(config) else config)["vocab_size"]
    new_size = max(size, max(origins) + 1)
    new_config = _resized(config, new_size)
    others = _without_rows(config, _resized(config, size + 1))
    tensors = {
        key: tensor.clone() if key in others else _with_new_rows(tensor, size, new_size, origins)
        for key, tensor in open_tensors(folder).items()
    }
    write_file(draft / WEIGHTS, lambda path: save_file(tensors, path, {"format": "pt"}))
    write_json(draft / CONFIG, new_config)
    seal(draft)
    _ = read_folder(draft)


def _has_decoder_config(config: Mapping[str, Any]) -> bool:
    """A captioner has the size of the vocabulary in the configuration of its decoder."""
    return isinstance(config.get("decoder"), dict)


def _resized(config: Mapping[str, Any], size: int) -> dict[str, Any]:
    if _has_decoder_config(config):
        return {**config, "decoder": {**config["decoder"], "vocab_size": size}}
    return {**config, "vocab_size": size}


def _without_rows(config: Mapping[str, Any], larger: Mapping[str, Any]) -> set[str]:
    """The keys of matrices without a row for each token, which may have the same size."""
    shapes = [file_shapes(values) for values in (config, larger)]
    return {key for key, shape in shapes[0].items() if shapes[1].get(key) == shape}


def _with_new_rows(tensor: Tensor, size: int, new_size: int, origins: Mapping[int, int | None]) -> Tensor:
    """A tensor with rows for the new tokens, if it has rows for tokens; any other unchanged.

    >>> _with_new_rows(torch.tensor([[1.0], [3.0]]), 2, 4, {2: 0, 3: None}).flatten().tolist()
    [1.0, 3.0, 1.0, 2.0]
    >>> _with_new_rows(torch.tensor([[1.0, 3.0]]), 2, 3, {2: 1}).tolist()  # a bias with one row
    [[1.0, 3.0, 3.0]]
    """
    if tensor.shape[:2] == (1, size):
        return _with_new_rows(tensor[0], size, new_size, origins)[None]
    if not tensor.dim() or len(tensor) != size:
        return tensor.clone()
    grown = torch.cat([tensor, tensor.new_zeros(new_size - size, *tensor.shape[1:])])
    mean = tensor[: min([size, *origins])].float().mean(0).to(tensor.dtype)
    for row, origin in origins.items():
        grown[row] = mean if origin is None else tensor[origin]
    return grown


def _add_to_vocabulary(folder: Path, tokens: list[str]) -> dict[str, int]:
    """Add tokens to the files of the vocabulary; `UserError` for a kind that cannot be extended."""
    whole, listed = folder / "tokenizer.json", folder / "vocab.json"
    if whole.is_file():
        tokenizer = library_tokenizer(whole)
        tokenizer.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in tokens])
        tokenizer.save(str(whole))
        ids = {token: i for token in tokens if (i := tokenizer.token_to_id(token)) is not None}
    elif (folder / "source.spm").is_file() and all(re.fullmatch(r">>\w+<<", token) for token in tokens):
        known = read_json(listed)
        ids = {token: i for i, token in enumerate(tokens, max(known.values()) + 1)}
        listed.write_text(json.dumps(known | ids, ensure_ascii=False, indent=1), encoding="utf-8")
    else:
        raise UserError(
            f"--special {tokens[0]}: tokens can be added to a tokenizer.json, or >>codes<< to a Marian's vocab.json; "
            "save the tokenizer with transformers first"
        )
    for name in (SETTINGS, "special_tokens_map.json"):
        _list_tokens(folder / name, ids)
    return ids


def _list_tokens(path: Path, ids: Mapping[str, int]) -> None:
    """Add new tokens to the lists of a file."""
    values = read_json(path) if path.is_file() else {}
    for name in LISTS:
        if isinstance(values.get(name), list):
            values[name] = [*values[name], *ids]
    if isinstance(values.get("added_tokens_decoder"), dict):
        plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        values["added_tokens_decoder"] |= {str(i): {"content": piece, **plain} for piece, i in ids.items()}
    if values:
        write_json(path, values)
