"""The parameters of a safetensors file, read lazily, so that packing them one by one needs little memory.

The file stays open, so that a model stays the same after training has replaced its file. It is not mapped, because
overwriting a mapped file can kill the process.
"""

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


class WeightsFile(Mapping[str, NDArray[np.float32]]):
    """Arrays in float32 by the names of the file; an array in use is not read again."""

    def __init__(self, path: Path) -> None:
        """`UserError` if it is damaged or holds other numbers than weights."""
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
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

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def _read_header(self) -> None:
        """The library checks that arrays are contiguous and have the size of their shapes."""
        place = LENGTH + int.from_bytes(self._file.read(LENGTH), "little")
        with safe_open(self.path, framework="numpy") as checked:
            for name in checked.offset_keys():
                about = checked.get_slice(name)
                self.shapes[name] = tuple(about.get_shape())
                dtype = self._dtype(name, about.get_dtype())
                self._places[name] = dtype, place
                place += int(np.prod(self.shapes[name], dtype=np.int64)) * dtype.itemsize

    def _dtype(self, name: str, kind: str) -> np.dtype[Any]:
        """Integers and 8-bit numbers need a scale, which is not in the file."""
        if kind not in KINDS:
            what = f"{name} holds {kind}, not floating-point weights"
            raise UserError(f"{self.path}: {what}; put the file back as it was trained")
        return np.dtype(KINDS[kind])

    def _read(self, name: str) -> NDArray[np.float32]:
        dtype, place = self._places[name]
        read = np.empty(self.shapes[name], dtype)
        self._file.seek(place)
        if self._file.readinto(read.reshape(-1).view(np.uint8).data) != read.nbytes:
            raise UserError(f"{self.path}: was cut short while it was in use; load the model again")
        if dtype == KINDS["BF16"]:  # the upper half of a float32
            return (read.astype("<u4") << 16).view("<f4")
        return read.astype(np.float32, copy=False)
