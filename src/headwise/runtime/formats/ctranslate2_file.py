"""The file of weights of CTranslate2 (`model.bin`), read without its library.

Format (https://github.com/OpenNMT/CTranslate2, python/ctranslate2/specs/model_spec.py), little-endian: version, kind of
network, its revision, variables (name, shape, type, bytes), and aliases of variables. Quantised weights become float32.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import CONFIG, read_json

MODEL_FILE = "model.bin"
VERSIONS = (4, 5, 6)  # of the format; earlier ones have no type in their variables
MAX_RANK, MAX_VARIABLES = 8, 100_000
MOST_COPIES = 8  # of a value of the file: matrices that are shared have up to four names
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # by number


@dataclass(frozen=True)
class CTranslate2File:
    """The content of the file."""

    kind: str  # such as "TransformerSpec"
    revision: int
    variables: Mapping[str, NDArray[Any]]  # by name, such as "encoder/layer_0/ffn/linear_0/weight"; as in the file

    def number(self, name: str, default: float = 0.0) -> float:
        """A setting; `UserError` for anything but one finite number."""
        if name not in self.variables:
            return default
        value = self.variables[name]
        if value.size != 1 or not np.isfinite(value).all():
            raise UserError(f"{MODEL_FILE}: {name} is not one number; copy the model again")
        return float(value.reshape(()))

    def weight(self, name: str) -> NDArray[np.float32]:
        """A tensor as float32; int8 weights have a scale for each row, and int16 weights one.

        Raises:
            UserError: it is missing, a number, an integer, or has no scale that fits.
        """
        values = self.variables.get(name, np.zeros(()))
        if not values.ndim or values.dtype == np.int32:
            raise UserError(f"{MODEL_FILE}: {name} holds no weights; copy the model again")
        if values.dtype not in (np.int8, np.int16):
            return values.astype(np.float32)
        scale = self.variables.get(f"{name}_scale", np.zeros(0)).astype(np.float32)
        if scale.size not in (1, len(values)) or not scale.all():
            raise UserError(f"{MODEL_FILE}: {name} has no scales that fit; copy the model again")
        return values.astype(np.float32) / scale.reshape(-1, *[1] * (values.ndim - 1))


def ctranslate2_kind(folder: Path) -> str:
    """The kind of network in a folder, such as "TransformerSpec"; "" if its `model.bin` is of another format."""
    try:
        with (folder / MODEL_FILE).open("rb") as file:
            head = file.read(64)
    except OSError:
        return ""
    if len(head) < 8 or int.from_bytes(head[:4], "little") not in range(1, 16):
        return ""
    length = int.from_bytes(head[4:6], "little")
    name = head[6 : 6 + min(length, 58)]
    return name[:-1].decode() if 1 < length < 58 and name.endswith(b"\0") and name[:-1].isalnum() else ""


def is_ctranslate2(folder: Path) -> bool:
    """Whether a folder holds a model of CTranslate2."""
    return bool(ctranslate2_kind(folder))


def read_ctranslate2_file(path: Path) -> CTranslate2File:
    """Read the file; `UserError` if it is damaged, or of another version."""
    try:
        return _Reader(path, path.read_bytes()).file()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def read_ctranslate2_settings(folder: Path) -> dict[str, Any]:
    """The settings in its config.json, none without the file; `UserError` for one of another type."""
    path = folder / CONFIG
    values = read_json(path) if path.is_file() else {}
    for name, value in values.items():
        if value is not None and not SETTINGS.get(name, _anything)(value):
            raise UserError(f"{path}: {name} = {str(value)[:40]} is of another type than it should be; copy it again")
    return values


def added_tokens(path: Path, tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """The added tokens of a tokenizer.json, with their ids; `UserError` if its list of them is something else."""
    listed = tokenizer.get("added_tokens") or []
    ids: dict[str, int] = {}
    for one in listed if isinstance(listed, list) else [listed]:
        token, i = (one.get("content"), one.get("id")) if isinstance(one, dict) else (None, None)
        if not isinstance(token, str) or type(i) is not int:
            raise UserError(f"{path}: added_tokens is no list of tokens with their ids; copy the file again")
        ids[token] = i
    return ids


def _anything(value: Any) -> bool:
    return True


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int or _ids(one) for one in value)


SETTINGS: dict[str, Callable[[Any], bool]] = {  # of config.json that are read, with what they must be
    **dict.fromkeys(
        ("bos_token", "eos_token", "unk_token", "decoder_start_token"), lambda value: isinstance(value, str)
    ),
    **dict.fromkeys(("add_source_bos", "add_source_eos"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("suppress_ids", "suppress_ids_begin", "alignment_heads"), _ids),
    "layer_norm_epsilon": lambda value: type(value) in (int, float) and 0 <= value < 1,
}


class _Reader:
    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data, self.at = path, data, 0

    def file(self) -> CTranslate2File:
        version = self._integer("<I")
        if version not in VERSIONS:
            known = f"{VERSIONS[0]} to {VERSIONS[-1]}"
            raise UserError(
                f"{self.path}: version {version} of CTranslate2's format; known are {known}; convert it again"
            )
        kind, revision = self._text(), self._integer("<I")
        variables = dict(self._variable() for _ in range(self._count()))
        room = MOST_COPIES * len(self.data)
        for _ in range(self._count() if version >= 3 and self.at < len(self.data) else 0):
            alias, name = self._text(), self._text()
            if name not in variables:
                raise self._damaged(f"{alias} is another name of {name}, which is missing")
            room -= variables[name].nbytes
            if room < 0:
                raise self._damaged("its variables have too many other names")
            variables |= {
                f"{alias}{end}": variables[f"{name}{end}"] for end in ("", "_scale") if f"{name}{end}" in variables
            }
        return CTranslate2File(kind, revision, variables)

    def _variable(self) -> tuple[str, NDArray[Any]]:
        name, rank = self._text(), self._integer("<B")
        if rank > MAX_RANK:
            raise self._damaged(f"{name} has {rank} dimensions")
        shape = [self._integer("<I") for _ in range(rank)]
        number, size = self._integer("<B"), self._integer("<I")
        if number >= len(TYPES):
            raise self._damaged(f"{name} has the unknown type {number}")
        content, kind = self._bytes(size), TYPES[number]
        values = np.frombuffer(content, np.uint16 if kind == "bfloat16" else kind) if self._fits(size, kind) else None
        if values is None or values.size != int(np.prod(shape, dtype=object)):
            raise self._damaged(f"{name} has {size} bytes, which do not fit its shape")
        if kind == "bfloat16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return name, values.reshape(shape)

    @staticmethod
    def _fits(size: int, kind: str) -> bool:
        return size % (2 if kind == "bfloat16" else np.dtype(kind).itemsize) == 0

    def _count(self) -> int:
        count = self._integer("<I")
        if count > MAX_VARIABLES:
            raise self._damaged(f"{count} variables")
        return count

    def _text(self) -> str:
        try:
            return self._bytes(self._integer("<H")).decode().removesuffix("\0")
        except UnicodeDecodeError:
            raise self._damaged("a name that is not UTF-8") from None

    def _integer(self, kind: str) -> int:
        (value,) = struct.unpack(kind, self._bytes(struct.calcsize(kind)))
        return value

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise self._damaged("it ends early")
        return self.data[self.at - size : self.at]

    def _damaged(self, why: str) -> UserError:
        return UserError(f"{self.path}: not a file of CTranslate2, or damaged ({why}); copy the model again")
