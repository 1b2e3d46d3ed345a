"""The files of a folder in the Hugging Face layout; needs no torch."""

import json
from pathlib import Path, PureWindowsPath
from typing import Any

from headwise.errors import UserError

CONFIG, WEIGHTS, SHARDS = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"  # of adapters for another folder
PREPROCESSOR = "preprocessor_config.json"  # preprocessing of pictures and sounds
UNREAD = "unread.safetensors"  # tensors of an imported checkpoint that the network does not use
PICKLED, PICKLED_SHARDS = "pytorch_model.bin", "pytorch_model.bin.index.json"  # before safetensors


def is_family(path: str | Path) -> bool:
    """Whether `path` is a pretrained model, in the Hugging Face layout or imported, or adapters for one."""
    folder = Path(path)
    if not (folder / CONFIG).is_file():
        return bool(adapters_in(folder))
    values = read_json(folder / CONFIG)
    return "family" in values or not {"format", "model"} & values.keys()


def adapters_in(path: Path) -> list[Path]:
    """The folders of adapters that `path` names, several joined by "+"; none for anything else."""
    parts = [path] if path.exists() else [Path(part) for part in str(path).split("+")]
    return parts if all((part / ADAPTER).is_file() for part in parts) else []


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a JSON object")
    return value


def weight_files(folder: Path) -> list[Path]:
    """The files of tensors in `folder`, all safetensors or all pickled; `UserError` without any."""
    for whole, shards in ((WEIGHTS, SHARDS), (PICKLED, PICKLED_SHARDS)):
        if (folder / whole).is_file():
            return [folder / whole]
        if (folder / shards).is_file():
            return sorted({folder / name for name in _weight_map(folder / shards).values()})
    raise UserError(f"{folder}: has neither {WEIGHTS} nor {SHARDS} nor {PICKLED} nor {PICKLED_SHARDS}")


def file_of(folder: Path, key: str) -> Path:
    """The file of `folder` that holds the tensor called `key`."""
    files = weight_files(folder)
    if len(files) == 1:
        return files[0]
    shards = SHARDS if (folder / SHARDS).is_file() else PICKLED_SHARDS
    return folder / _weight_map(folder / shards).get(key, shards)


def is_outside(name: str) -> bool:
    """Whether a name in an archive or index leads out of its folder, with the separators and drives of any system.

    >>> [is_outside(name) for name in ("a/b", "/a", "a/../../b", "..\\\\b", "c:b")]
    [False, True, True, True, True]
    """
    return bool(PureWindowsPath(name).anchor) or ".." in PureWindowsPath(name).parts


def _weight_map(path: Path) -> dict[str, str]:
    """Which file holds which tensor, from the index at `path`."""
    found = read_json(path).get("weight_map")
    if not isinstance(found, dict) or not found or not all(isinstance(name, str) for name in found.values()):
        raise UserError(f"{path}: has no 'weight_map' from the names of tensors to those of files")
    for name in found.values():
        if is_outside(name):
            raise UserError(f"{path}: names {name}, which is outside of the folder; fetch the checkpoint again")
    missing = sorted({name for name in found.values() if not (path.parent / name).is_file()})
    if missing:
        raise UserError(f"{path}: names {missing[0]}, which is missing; fetch the whole checkpoint")
    return found


PACKED = "packed.{}"  # by precision; see `packed`
