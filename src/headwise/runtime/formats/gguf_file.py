"""GGUF files of llama.cpp: metadata and tensors.

Format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian: counts, metadata by key, the name,
shape, type and offset of each tensor, and their content. See `gguf_model` for the network that a file holds.
"""

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
NUMBERS = "BbHhIif?"  # types 0 to 7 of metadata; 8 is a string, 9 an array
WIDE_NUMBERS = {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MAX_DIMENSIONS = 4
F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30  # types of tensors that are read
BLOCK_SIZE = 32  # values with a common scale
BLOCKS = {
    Q4_0: np.dtype([("scale", "<f2"), ("halves", "u1", 16)]),
    Q4_1: np.dtype([("scale", "<f2"), ("least", "<f2"), ("halves", "u1", 16)]),
    Q8_0: np.dtype([("scale", "<f2"), ("values", "i1", 32)]),
}
READ = "F32, F16, BF16, Q8_0, Q4_0 and Q4_1"
TYPES: dict[str, type | tuple[type, ...]] = {  # of metadata, by the end of their key; of others nothing is read
    **dict.fromkeys(("general.architecture", "rope.scaling.type", "ggml.model", "ggml.pre", "chat_template"), str),
    **dict.fromkeys(("general.alignment", "split.count", "_length", "block_count", "head_count", "head_count_kv"), int),
    **dict.fromkeys(("_token_id", "dimension_count", ".vocab_size", "expert_count"), int),
    **dict.fromkeys(("_epsilon", "freq_base", ".factor", "freq_factor"), (int, float)),
    **dict.fromkeys(("add_bos_token", "add_eos_token", "add_space_prefix", "finetuned"), bool),
}
LISTS: dict[str, type | tuple[type, ...]] = {  # of lists
    **{"ggml.tokens": str, "ggml.merges": str, "ggml.token_type": int, "ggml.scores": (int, float)},
}
OTHER_TYPES = {
    **{6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K"},
    **{14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S"},
    **{22: "IQ2_S", 23: "IQ4_XS", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"},
}


@dataclass(frozen=True)
class GGUFTensor:
    """The position of a tensor in the file."""

    shape: tuple[int, ...]  # the last dimension is contiguous, as in numpy
    kind: int
    start: int  # in bytes from the start of the file

    @property
    def size(self) -> int | None:
        """The number of bytes; None for an unsupported type."""
        count = math.prod(self.shape)
        if self.kind in BLOCKS:
            return count // BLOCK_SIZE * BLOCKS[self.kind].itemsize
        return {F32: 4 * count, F16: 2 * count, BF16: 2 * count}.get(self.kind)


@dataclass(frozen=True)
class GGUFFile:
    """The metadata of a file, and its tensors, which are read when they are needed."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor in float32, which holds the values of all supported types exactly.

        Raises:
            UserError: of a type that is not supported, or the file ends early.
        """
        one = self.tensors[name]
        count = math.prod(one.shape)
        if one.kind in BLOCKS:
            values = _dequantised(self._read(name, one.start, BLOCKS[one.kind], count // BLOCK_SIZE))
        elif one.kind == BF16:
            values = (self._read(name, one.start, np.dtype("<u2"), count).astype(np.uint32) << 16).view(np.float32)
        elif one.kind in (F32, F16):
            kind = np.dtype("<f4" if one.kind == F32 else "<f2")
            values = self._read(name, one.start, kind, count).astype(np.float32)
        else:
            known = OTHER_TYPES.get(one.kind, f"type {one.kind}")
            raise UserError(
                f"{self.path}: {name} is quantised as {known}; only {READ} are read: choose such a file of the model"
            )
        if values.size != count:
            raise UserError(f"{self.path}: {name} has {count:,} values, which are no whole blocks; the file is damaged")
        return values.reshape(one.shape)

    def _read(self, name: str, start: int, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        with self.path.open("rb") as file:
            size = kind.itemsize * count
            if start + size > os.fstat(file.fileno()).st_size:
                raise UserError(f"{self.path}: ends before the content of {name}; download it again")
            file.seek(start)
            return np.frombuffer(file.read(size), kind)


def _dequantised(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """The values of blocks; the first 16 of a block are the low halves of its bytes, the others the high ones."""
    scale = blocks["scale"].astype(np.float32)[:, None]
    if "values" in (fields := blocks.dtype.fields or {}):
        return blocks["values"] * scale
    values = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1).astype(np.float32)
    return values * scale + blocks["least"].astype(np.float32)[:, None] if "least" in fields else (values - 8) * scale


def is_gguf(path: Path) -> bool:
    """Whether a file begins as a GGUF file does."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_gguf_file(path: Path) -> GGUFFile:
    """Read the metadata and the list of tensors; `UserError` if the file is damaged or of another version."""
    with path.open("rb") as file:
        reader = _HeaderReader(path, file)
        try:
            return reader.file()
        except (UnicodeDecodeError, OverflowError, RecursionError) as error:
            raise reader.damaged(str(error)) from None


class _HeaderReader:
    def __init__(self, path: Path, file: BufferedReader) -> None:
        self.path, self._file = path, file
        self._left = os.fstat(file.fileno()).st_size

    def file(self) -> GGUFFile:
        self._bytes(len(MAGIC))
        version = self._number("I")
        if version not in VERSIONS:
            raise UserError(f"{self.path}: version {version} of GGUF; only {VERSIONS} are read, in little-endian order")
        n_tensors, n_keys = self._count(24), self._count(12)
        metadata = {self._text(): self._value(self._number("I")) for _ in range(n_keys)}
        for key, value in metadata.items():
            self._check_type(key, value)
        tensors = [self._tensor() for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not 0 < alignment <= 1 << 20:
            raise self.damaged(f"general.alignment = {str(alignment)[:20]}")
        content = -(-self._file.tell() // alignment) * alignment
        placed = {name: GGUFTensor(one.shape, one.kind, content + one.start) for name, one in tensors}
        if len(placed) < len(tensors):
            raise self.damaged("two tensors have the same name")
        self._check_places(placed)
        return GGUFFile(self.path, metadata, placed)

    def _check_type(self, key: str, value: Any) -> None:
        for ends, listed in ((TYPES, False), (LISTS, True)):
            wanted = next((kind for end, kind in ends.items() if key.endswith(end)), None)
            if wanted is None:
                continue
            values = value if listed and isinstance(value, list) else [value]
            fits = all(isinstance(one, wanted) and (wanted is bool or not isinstance(one, bool)) for one in values)
            if not fits or listed != isinstance(value, list):
                raise self.damaged(f"{key[:60]} = {str(value)[:20]} is of another type than it should be")

    def _check_places(self, tensors: Mapping[str, GGUFTensor]) -> None:
        """Tensors that share bytes could take any amount of memory."""
        behind = 0
        for name, one in sorted(tensors.items(), key=lambda item: item[1].start):
            if (size := one.size) is None:  # of a type that is not read
                continue
            if size and one.start < behind:
                raise self.damaged(f"{name[:60]} shares its bytes with another tensor")
            behind = max(behind, one.start + size)

    def _tensor(self) -> tuple[str, GGUFTensor]:
        name, dimensions = self._text(), self._number("I")
        if dimensions > MAX_DIMENSIONS:
            raise self.damaged(f"{name[:60]} has {dimensions} dimensions")
        shape = [self._number("Q") for _ in range(dimensions)]
        return name, GGUFTensor(tuple(reversed(shape)), self._number("I"), self._number("Q"))

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self._text()
        if kind == ARRAY and depth < MAX_DIMENSIONS:
            inner = self._number("I")
            code = self._code(inner)
            if code:
                size = struct.calcsize(code)
                return list(struct.unpack(f"<{(count := self._count(size))}{code}", self._bytes(count * size)))
            return [self._value(inner, depth + 1) for _ in range(self._count(8))]
        if code := self._code(kind):
            return self._number(code)
        raise self.damaged(f"metadata of type {kind}")

    @staticmethod
    def _code(kind: int) -> str:
        """The format of a number for `struct`; "" for other types."""
        return NUMBERS[kind] if kind < len(NUMBERS) else WIDE_NUMBERS.get(kind, "")

    def _text(self) -> str:
        return self._bytes(self._count(1)).decode("utf-8")

    def _count(self, size: int) -> int:
        """A number of things that have at least `size` bytes each."""
        count = self._number("Q")
        if count * size > self._left:
            raise self.damaged("it ends early")
        return count

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._bytes(struct.calcsize(code)))[0]

    def _bytes(self, size: int) -> bytes:
        found = self._file.read(size)
        self._left -= size
        if len(found) < size:
            raise self.damaged("it ends early")
        return found

    def damaged(self, why: str) -> UserError:
        return UserError(f"{self.path}: not a GGUF file, or damaged ({why}); download it again")
