"""Folders of adapters (LoRA, in the layout of `peft`) and of the model that they change; needs no torch.

`adapter_config.json` names the folder of the model. See `adapters` for the matrices.
"""

import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from headwise.errors import UserError
from headwise.runtime.checkpoint.hub import known_folder
from headwise.runtime.checkpoint.layout import ADAPTER, CONFIG, adapters_in, read_json, weight_files

MATRICES, PICKLED_MATRICES = "adapter_model.safetensors", "adapter_model.bin"


def home_of(path: Path) -> Path:
    """The folder with config.json and tokenizer: that of the adapters if it has them, or of the base model."""
    found = adapters_in(path)
    if not found:
        return path
    return found[0] if (found[0] / CONFIG).is_file() else home_of(base_of(found[0]))


def base_of(folder: Path) -> Path:
    """The folder of the model that adapters change; `UserError` if it does not exist."""
    name = str(read_json(folder / ADAPTER).get("base_model_name_or_path") or "")
    for base in (known_folder(name), folder / name) if name else ():
        if (base / CONFIG).is_file():
            return base
    raise UserError(
        f"{folder / ADAPTER}: base_model_name_or_path = {name!r} is no folder of a model; write there where it is"
    )


def folders_of(path: Path) -> list[Path]:
    """Every folder that a model is read from: its own, or those of adapters and of the model they change."""
    found = adapters_in(path)
    return [*folders_of(base_of(found[0])), *found] if found else [path]


def tensor_files(path: Path) -> list[Path]:
    """Every file of tensors of a model: those of its folder, or of adapters and of the model they change."""
    found = adapters_in(path)
    return [*tensor_files(base_of(found[0])), *map(matrices_file, found)] if found else weight_files(path)


def matrices_file(folder: Path) -> Path:
    """The file of the matrices: safetensors, or the pickled one of older versions of peft."""
    pickled = folder / PICKLED_MATRICES
    return pickled if pickled.is_file() and not (folder / MATRICES).is_file() else folder / MATRICES


def describe_adapters(path: Path) -> str:
    """Rank, size and model of each adapter that `path` names; "" for other folders."""
    lines = []
    for folder in adapters_in(path):
        values, path, base = read_json(folder / ADAPTER), matrices_file(folder), base_of(folder)
        size = "" if path.name == PICKLED_MATRICES else f"{sum(tensor_sizes(path)):,} parameters, "
        rank, alpha = values.get("r"), values.get("lora_alpha")
        lines.append(f"{folder.absolute().name}: rank {rank}, alpha {alpha}, {size}added to {base}")
    return "; ".join(lines)


def tensor_sizes(path: Path) -> list[int]:
    """The number of elements of each tensor in a safetensors file."""
    try:
        with safe_open(path, "np") as file:
            return [math.prod(file.get_slice(key).get_shape()) for key in file.keys()]  # noqa: SIM118, no dictionary
    except (OSError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: cannot be read as safetensors ({reason})") from None
