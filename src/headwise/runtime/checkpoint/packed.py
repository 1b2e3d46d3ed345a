"""Weights packed for the compiled library ahead of time, in a file next to the weights.

The first translation does not wait for packing. The file holds the parts of
`runtime.native.linear.PackedMemory` one after another; the addresses at the start of a layer are set in each process.
The header identifies what was packed: the digest of `model.safetensors`, a checksum of the unpacked parameters, the
network's settings, the precision, and the sources of the packing code. If any differs, the file is ignored with a
warning. The header also has a checksum of the content, so a damaged file is an error, and the sizes and times of the
files of weights: if they are others now, the digest of the weights is computed and compared with the manifest.

The file is read into memory, not mapped: a process that has it mapped would be killed when another program overwrites
it in place. See `headwise.runtime.native` for packing.
"""

import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import sizeof
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config.network import NetworkConfig
from headwise.errors import UserError
from headwise.runtime.checkpoint.compiled import compiled
from headwise.runtime.checkpoint.layout import PACKED
from headwise.runtime.checkpoint.trained import write_file
from headwise.runtime.formats.weights import Arrays
from headwise.runtime.native.arrays import Floats, at
from headwise.runtime.native.build import FOLDER, version
from headwise.runtime.native.library import Linear, needed
from headwise.runtime.native.linear import REGISTER, PackedMemory

HELD = (
    "_proj.weight",
    "_proj.bias",
    "tokens.weight",
    "head.output.weight",
    "head.output.bias",
)  # ends of the names of packed parameters
ORDERED_BY = (FOLDER / "linear.py", FOLDER / "network.py", Path(__file__).with_name("compiled.py"), Path(__file__))
HEADER = 4096  # bytes before the layers: JSON and spaces
FileStates = list[list[int]]  # of each file of weights: size in bytes, times of the last change
ADDRESSES = -(-sizeof(Linear) // REGISTER) * REGISTER  # bytes at the start of a layer


class Collected(PackedMemory):
    """Memory that records its parts, tables included."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[NDArray[Any]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        self.parts.append(super().take(size))
        return self.parts[-1]

    def kept(self, table: Floats, halved: bool) -> NDArray[Any]:
        self.parts.append(super().kept(table, halved))
        return self.parts[-1]

    def written(self) -> Iterator[bytes | memoryview]:
        """The bytes of a file: layers without their addresses; each part is aligned to a register."""
        for part in self.parts:
            layer = part.ndim == 1  # a table has two dimensions
            yield bytes(ADDRESSES if layer else 0)
            yield part.reshape(-1).view(np.uint8)[ADDRESSES if layer else 0 :].data
            yield bytes(-part.nbytes % REGISTER)


class PackedFile(PackedMemory):
    """The parts of a file, in the order of packing."""

    filled = True

    def __init__(self, path: Path, parts: NDArray[np.uint8]) -> None:
        super().__init__()
        self._path, self._left = path, parts

    def take(self, size: int) -> NDArray[np.uint8]:
        if size > len(self._left):
            raise damaged(self._path, "it is too short")
        return super().take(size)

    def kept(self, table: Floats, halved: bool) -> NDArray[Any]:
        numbers = np.dtype(np.uint16 if halved else np.float32)
        return self.take(table.size * numbers.itemsize).view(numbers).reshape(table.shape)

    def joined(self, arrays: Sequence[Floats]) -> Floats:
        return np.empty((sum(map(len, arrays)), *arrays[0].shape[1:]), np.float32)


class Unread(Mapping[str, Floats]):
    """The parameters of a file; packed ones are uninitialized arrays of the right shape, which use no memory."""

    def __init__(self, weights: Arrays) -> None:
        self._weights = weights
        self._held = {name: np.empty(weights.shapes[name], np.float32) for name in weights if name.endswith(HELD)}

    def __getitem__(self, name: str) -> Floats:
        return self._held[name] if name in self._held else self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def write_packed(
    folder: Path, c: NetworkConfig, arrays: Arrays, compute: str, digest: Callable[[], str], states: FileStates
) -> Path:
    """Pack a network into the file for `compute` in its folder; `digest` gives the digest of its weights, which is
    computed, and `states` are those of their files before that."""
    memory = Collected()
    compiled(c, arrays, compute, memory)
    body = np.frombuffer(b"".join(memory.written()), np.uint8)
    about = {"of": made_of(c, arrays, compute, digest()), "bytes": HEADER + len(body), "checksum": checksum(body)}
    about["weights"] = states

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            file.writelines([json.dumps(about).encode().ljust(HEADER), body.data])

    path = folder / PACKED.format(compute)
    write_file(path, write)
    return path


def read_packed(
    path: Path, c: NetworkConfig, arrays: Arrays, compute: str, digest: str, check: Callable[[FileStates], None]
) -> tuple[Any, ...] | None:
    """The arguments of `compiled` after the configuration: parameters, `compute`, and the memory with the layers.

    None, with a warning, if the file was packed from other weights or code.

    Args:
        digest: of the weights, as listed.
        check: called with the states of the files of weights when they were packed; if these are others now, compares
            the weights with the manifest.

    Raises:
        UserError: the file is not a packed file, is damaged, or cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            content = file.read(HEADER)
            body = _read_body(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable, or delete it") from None
    try:
        about = json.loads(content)
        of, size, states = about["of"], about["bytes"], about.get("weights")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged(path, "it has no header") from None
    if of != made_of(c, arrays, compute, digest):
        what = "was packed from other weights or by another version of Headwise, and is ignored"
        warnings.warn(f"{path}: {what}; {made_anew(path)}", stacklevel=2)
        return None
    if size != HEADER + len(body):
        raise damaged(path, f"it has {len(content) + len(body):,} bytes, not {size:,}")
    if about.get("checksum") != checksum(body):
        raise damaged(path, "its content does not have the checksum in its header")
    check(states)
    return Unread(arrays), compute, PackedFile(path, body)


def _read_body(file: FileIO) -> NDArray[np.uint8]:
    """The rest of a file, aligned to a register; shorter if another program shortens the file meanwhile."""
    size = max(os.fstat(file.fileno()).st_size - HEADER, 0)
    memory = np.empty(size + REGISTER, np.uint8)
    body = memory[-memory.ctypes.data % REGISTER :][:size]
    done = 0
    while count := file.readinto(body[done:].data):
        done += count
    return body[:done]


def made_of(c: NetworkConfig, arrays: Arrays, compute: str, digest: str) -> list[Any]:
    """The identity of the packed content, for the header.

    `digest` is that of the weights in the manifest, so they are not hashed at every start. The checksum of the unpacked
    parameters, which are read anyway, detects weights that were replaced without a new manifest.
    """
    unpacked = zlib.crc32(repr(c).encode())
    for name in sorted(arrays):
        unpacked = unpacked if name.endswith(HELD) else zlib.crc32(arrays[name].tobytes(), unpacked)
    return [compute, digest, unpacked, sources()]


def checksum(body: NDArray[np.uint8]) -> int:
    """The checksum of `runtime/native/checksum.c`; SHA-256 would double the start-up time."""
    return needed().headwise_checksum(at(body), body.size)


@cache
def sources() -> int:
    """A checksum of the code that determines the layout: the C sources and four Python files."""
    return zlib.crc32(b"".join(path.read_bytes() for path in ORDERED_BY), version())


def damaged(path: Path, why: str) -> UserError:
    """The error for a damaged file."""
    return UserError(f"{path}: damaged: {why}; delete it, or {made_anew(path)}")


def made_anew(path: Path) -> str:
    """Advice for packing again."""
    return f"`headwise pack {path.parent} --compute {path.suffix[1:]}` packs it again"
