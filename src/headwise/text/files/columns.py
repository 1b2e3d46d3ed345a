"""Columns of a prepared corpus: rows of different lengths in flat arrays, which are written once and memory-mapped."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from headwise.text.tokens.tokenize_pairs import COLUMNS, LENGTH

ENDS = np.dtype("<i8")
LENGTH_FILES = ("src.lengths", "tgt.lengths")


@dataclass(frozen=True)
class Column:
    """Rows of different lengths in one flat array; row i is `values[ends[i]:ends[i + 1]]`."""

    values: NDArray[Any]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.ends[row] : self.ends[row + 1]]

    @property
    def parts(self) -> "Sequence[Column]":
        """The column itself."""
        return [self]


class JoinedColumn:
    """The rows of several columns, one after the other."""

    def __init__(self, parts: Sequence[Column]) -> None:
        self.parts = parts
        self._starts = np.cumsum([0, *map(len, parts)]).tolist()

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> NDArray[Any]:
        part = bisect_right(self._starts, row, hi=len(self.parts)) - 1
        return self.parts[part][row - self._starts[part]]


AnyColumn = Column | JoinedColumn


class ColumnWriter:
    """Appends rows to a column on disk."""

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self.values, self.ends, *self.lengths = files
        self.end = 0
        self.ends.write(np.zeros(1, ENDS).tobytes())

    def append(self, values: bytes, lengths: NDArray[np.int32]) -> None:
        """Append concatenated rows."""
        ends = self.end + np.cumsum(lengths, dtype=ENDS)
        self.end = int(ends[-1])
        self.values.write(values)
        self.ends.write(ends.tobytes())
        for file in self.lengths:
            file.write((lengths + 1).tobytes())


@contextmanager
def column_writer(folder: Path, name: str) -> Iterator[ColumnWriter]:
    """A writer for the files of a column."""
    with ExitStack() as files:
        yield ColumnWriter([files.enter_context(open(folder / file, "wb")) for file in column_files(name)])


def column_files(column: str) -> list[str]:
    """The files of a column; columns of tokens have lengths too, for planning batches."""
    parts = ("values", "ends") if column.endswith("_text") else ("values", "ends", "lengths")
    return [f"{column}.{part}" for part in parts]


def map_array(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory-map a file as an array; a plain view, because slicing `np.memmap` itself is slow."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)


def map_columns(folder: Path) -> dict[str, Column]:
    """Map the columns in a folder into memory."""
    return {
        name: Column(map_array(folder / f"{name}.values", dtype), map_array(folder / f"{name}.ends", ENDS))
        for name, dtype in COLUMNS.items()
    }


def map_lengths(folder: Path) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Map the lengths of sources and targets, with EOS, into memory."""
    src, tgt = (map_array(folder / name, LENGTH) for name in LENGTH_FILES)
    return src, tgt
