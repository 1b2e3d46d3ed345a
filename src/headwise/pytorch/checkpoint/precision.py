"""The precision of a pretrained network: that of its file or another; quantised files are refused.

See `published` for reading files and `headwise.runtime.native.linear` for int8 of models trained here.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.errors import UserError, unknown
from headwise.runtime.checkpoint.layout import CONFIG, file_of

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Tensors of bitsandbytes, GPTQ, AWQ, fp8 and compressed-tensors.
QUANTISED = r"\.(qweight|qzeros|SCB|absmax|quant_map|weight_scale|weight_scale_inv|weight_packed)$|\.quant_state\."


def dtype_for(name: str, device: torch.device) -> torch.dtype | None:
    """The precision called `name` on a device; None is that of the file.

    CPUs are slow and inexact in half precision, so "auto" is float32 there.

    >>> dtype_for("auto", torch.device("cpu"))
    torch.float32
    """
    if name == "auto":
        return torch.float32 if device.type == "cpu" else None
    if name not in DTYPES:
        raise unknown("dtype", name, ("auto", *DTYPES))
    return DTYPES[name]


def widest(tensors: Iterable[Tensor]) -> torch.dtype:
    """The precision that holds all of these, float32 at most.

    >>> widest([torch.zeros(1, dtype=torch.float16), torch.zeros(1, dtype=torch.bfloat16)])
    torch.float32
    """
    found = {tensor.dtype for tensor in tensors}
    return next(iter(found)) if len(found) == 1 and found <= {*DTYPES.values()} else torch.float32


def name_of(dtype: torch.dtype) -> str:
    """The name of a precision for users.

    >>> name_of(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def refuse_quantised_config(folder: Path, values: Mapping[str, Any]) -> None:
    """`UserError` for a `config.json` of quantised weights."""
    for key in ("quantization_config", "compression_config"):
        if values.get(key):
            method = values[key].get("quant_method") if isinstance(values[key], Mapping) else values[key]
            raise _refusal(folder / CONFIG, f"{key} says {method!r}")


def refuse_quantised(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """`UserError` for quantised tensors of `folder`."""
    for key, tensor in tensors.items():
        if re.search(QUANTISED, key):
            raise _refusal(file_of(folder, key), f"{key} belongs to a quantised tensor")
        if tensor.element_size() == 1 and tensor.dtype != torch.bool:
            raise _refusal(file_of(folder, key), f"{key} is {name_of(tensor.dtype)}")


def _refusal(file: Path, what: str) -> UserError:
    return UserError(f"{file}: {what}; only float32, float16 and bfloat16 are read: take the checkpoint before that")
