"""The parameters of a safetensors file, read lazily, so that packing them one by one needs little memory.

The file stays open, so that a model stays the same after training has replaced its file. It is not mapped, because
overwriting a mapped file can kill the process.
"""

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from os import name as system
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from headwise.errors import UserError

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # names in the file and in numpy
LENGTH = 8  # bytes before the header with its length


class Arrays(Mapping[str, NDArray[np.float32]]):
    """Arrays by name that are read when they are needed."""

    shapes: dict[str, tuple[int, ...]]  # of all, known without reading them

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


class WeightsFile(Arrays):
    """Arrays in float32 by the names of the file; an array in use is not read again."""

    def __init__(self, path: Path, only_weights: bool = True) -> None:
        """`UserError` if it is damaged, or with `only_weights` if it holds other numbers than weights."""
        self.path = path
        self.shapes = {}
        self.every_shape: dict[str, tuple[int, ...]] = {}  # also of other numbers than weights
        self.kinds: dict[str, str] = {}  # as the file names them, such as "F32"
        self._only_weights = only_weights
        self._places: dict[str, tuple[np.dtype[Any], int]] = {}
        self._in_use: WeakValueDictionary[str, NDArray[np.float32]] = WeakValueDictionary()
        self._lock = Lock()  # the file has one position
        try:
            # Windows cannot replace an open file.
            self._file = BytesIO(path.read_bytes()) if system == "nt" else path.open("rb")
            finalize(self, self._file.close)
            self._read_header()
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: damaged or not a safetensors file ({error})") from None

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        with self._lock:
            found = self._in_use.get(name)
            if found is None:
                found = self._in_use[name] = self._read(name)
            return found

    def _read_header(self) -> None:
        with safe_open(self.path, framework="numpy"):  # checks that the header fits the file
            length = int.from_bytes(self._file.read(LENGTH), "little")
        header = json.loads(self._file.read(length))
        header.pop("__metadata__", None)
        for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            self.every_shape[name], self.kinds[name] = tuple(about["shape"]), about["dtype"]
            if self.kinds[name] in KINDS:
                self.shapes[name] = self.every_shape[name]
                self._places[name] = np.dtype(KINDS[about["dtype"]]), LENGTH + length + about["data_offsets"][0]
            elif self._only_weights:  # integers and 8-bit numbers need a scale, which is not in the file
                what = f"{name} holds {about['dtype']}, not floating-point weights"
                raise UserError(f"{self.path}: {what}; put the file back as it was trained")

    def _read(self, name: str) -> NDArray[np.float32]:
        dtype, place = self._places[name]
        read = np.empty(self.shapes[name], dtype)
        self._file.seek(place)
        if self._file.readinto(read.reshape(-1).view(np.uint8).data) != read.nbytes:
            raise UserError(f"{self.path}: was cut short while it was in use; load the model again")
        if dtype == KINDS["BF16"]:  # the upper half of a float32
            return (read.astype("<u4") << 16).view("<f4")
        return read.astype(np.float32, copy=False)
