"""Tensors of a pretrained file: mapped or unpickled safely, and written in its layout."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_STORED

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import Parameter

from headwise.errors import UserError
from headwise.families.table import Entry
from headwise.runtime.formats.archives import bounded_archive

ARCHIVE = b"PK\x03\x04"  # first bytes of a zip file
MOST_COPIES = 8  # of a value of a file: matrices that are shared have up to four names


def _mapped(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118, it is no dictionary
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged or not a safetensors file ({error})") from None


def _unpickled(path: Path) -> dict[str, Tensor]:
    """The tensors of a pickled file, contiguous; torch's reader refuses anything else.

    Files from before torch 1.6 are no archives and cannot be mapped; they are read into memory.
    """
    warnings.warn(f"{path}: an old format, read without running any code in it; safetensors are safer", stacklevel=2)
    try:
        with path.open("rb") as file:
            archive = file.read(len(ARCHIVE)) == ARCHIVE
        if archive:
            _check_archive(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
    except UserError:
        raise
    except Exception as error:  # many kinds, all about this file
        raise UserError(f"{path}: cannot be read as tensors alone ({type(error).__name__})") from None
    if not isinstance(tensors, dict) or not all(isinstance(key, str) for key in tensors):
        raise UserError(f"{path}: cannot be read as tensors alone; it holds more than those")
    for key, tensor in tensors.items():
        if type(tensor) not in (Tensor, Parameter) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise UserError(f"{path}: cannot be read as tensors alone; it holds more than those ({key[:60]})")
    size = path.stat().st_size
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) > MOST_COPIES * size:
        raise UserError(f"{path}: its tensors are more than {MOST_COPIES} times as large as the file; it is damaged")
    return {key: tensor.detach().contiguous() for key, tensor in tensors.items()}


def _check_archive(path: Path) -> None:
    """`UserError` for an archive that grows when it is read: torch writes none with compressed files."""
    with bounded_archive(path, most=1) as archive:
        if any(one.compress_type != ZIP_STORED for one in archive.infolist()):
            raise UserError(
                f"{path}: its archive is compressed, which PyTorch's are not; save it again with torch.save"
            )


def file_tensor(entry: Entry, own: Mapping[str, Tensor]) -> Tensor:
    """The tensor of a file for one entry of a family's table, from our parameters; the reverse of `Entry.to_own`."""
    parts = [own[name] for name in entry.names]
    if "%" in entry.marks:
        tensor = torch.stack([part.unflatten(0, (entry.n_heads, -1)) for part in parts], 1).flatten(0, 2)
    else:
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
    if "^" in entry.marks:
        tensor = tensor.t()
    return (tensor.unsqueeze(0) if "+" in entry.marks else tensor).contiguous()
