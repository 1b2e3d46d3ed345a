"""The parameters in a safetensors file, each read when it is asked for: who packs them one by one never holds them all.

The file stays open for as long as somebody may ask, so that a model is the one it was when it was loaded, also after
training has put another in its place. It is not mapped: a file that somebody writes over would end the process.
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

from sightline.errors import UserError

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # as the file and as numpy calls them
LENGTH = 8  # bytes before the header, which say how long it is


class WeightsFile(Mapping[str, NDArray[np.float32]]):
    """Arrays in float32 by the names of the file; what is asked for again while it is in use is the same array."""

    def __init__(self, path: Path) -> None:
        """`UserError` where it is damaged, or holds numbers that are no weights."""
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, tuple[np.dtype[Any], int]] = {}
        self._in_use: WeakValueDictionary[str, NDArray[np.float32]] = WeakValueDictionary()
        self._lock = Lock()  # the file is at one place
        try:
            # Windows lets nobody replace a file that is open.
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
        """The library checks that arrays lie one behind the other, as many bytes each as its shape wants."""
        place = LENGTH + int.from_bytes(self._file.read(LENGTH), "little")
        with safe_open(self.path, framework="numpy") as checked:
            for name in checked.offset_keys():
                about = checked.get_slice(name)
                self.shapes[name] = tuple(about.get_shape())
                dtype = self._dtype(name, about.get_dtype())
                self._places[name] = dtype, place
                place += int(np.prod(self.shapes[name], dtype=np.int64)) * dtype.itemsize

    def _dtype(self, name: str, kind: str) -> np.dtype[Any]:
        """Whole numbers, and those of eight bits, mean something with a scale only, and that is not in the file."""
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
