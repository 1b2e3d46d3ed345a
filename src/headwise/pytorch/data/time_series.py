"""Time series: read a CSV file with a header, standardise its columns, and cut it into windows with their targets.

A first column without numbers (dates) is skipped; all other columns must be numeric. Rows are equally spaced in time,
oldest first. Training is in `headwise.pytorch.tasks.forecasting`.
"""

import csv
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from headwise.core.batches import UnpaddedBatch
from headwise.errors import UserError, unknown
from headwise.text.files.corpus import read_lines
from headwise.text.files.sources import display_name
from headwise.text.prepared.batch_planning import Rows

Values = NDArray[np.float64]
LEAST_VARIANCE = 1e-5  # added to that of a window, which may be constant; the value is RevIN's


@dataclass(frozen=True)
class Table:
    """The numeric columns of a file."""

    path: str
    columns: tuple[str, ...]
    values: Values  # (rows, columns)

    @property
    def key(self) -> str:
        """A hash of the table."""
        return hashlib.sha256(repr(self.columns).encode() + self.values.tobytes()).hexdigest()[:32]

    def split(self, share: float) -> tuple["Table", "Table"]:
        """Split off the last `share` of the rows."""
        border = len(self.values) - round(share * len(self.values))
        return (
            Table(self.path, self.columns, self.values[:border]),
            Table(self.path, self.columns, self.values[border:]),
        )


def read_table(path: str) -> Table:
    """The table in a CSV file, also `.gz`.

    Raises:
        UserError: a cell is missing or not a number, rows have different numbers of cells, or there is no row.
    """
    rows = csv.reader(read_lines(path))
    name = display_name(path)
    try:
        header, first = next(rows), next(rows, None)
        if first is None:
            raise UserError(f"{name}: has a header and no rows; give a CSV file with one row for each time step")
        start = 0 if _is_number(first[0] if first else "") else 1
        columns = tuple(column.strip() for column in header[start:])
        values = [_numbers(first, header, start, name, 2)]
        values += [_numbers(row, header, start, name, line) for line, row in enumerate(rows, start=3)]
    except csv.Error as error:
        raise UserError(f"{name}: not a CSV file ({error})") from None
    if not columns or any(map(_is_number, columns)):
        raise UserError(f"{name}: line 1 must name the columns, for example 'date,load,temperature'")
    return Table(path, columns, np.array(values))


def _numbers(row: Sequence[str], header: Sequence[str], start: int, name: str, line: int) -> list[float]:
    """The numeric cells of a row."""
    if len(row) != len(header):
        raise UserError(f"{name}: line {line} has {len(row)} cells, but the header has {len(header)}")
    for column, cell in zip(header[start:], row[start:], strict=True):
        if not _is_number(cell):
            what = "is missing" if cell.strip().lower() in ("", "nan", "na", "null") else f"'{cell}' is not a number"
            raise UserError(f"{name}: line {line}: the value of {column} {what}; fill it in or leave the column out")
    return [float(cell) for cell in row[start:]]


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def select(table: Table, columns: Sequence[str]) -> Values:
    """The values of these columns, in this order; `UserError` if one is missing."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UserError(f"{display_name(table.path)}: has no column '{missing[0]}'; it has {', '.join(table.columns)}")
    return table.values[:, [table.columns.index(column) for column in columns]]


@dataclass(frozen=True)
class Scaling:
    """Columns, the column to forecast, and the training statistics for standardisation."""

    columns: tuple[str, ...]
    target: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fit(cls, tables: Sequence[Table], target: str, inputs: str = "all") -> "Scaling":
        """Statistics of training tables; `target` "" is the last column. A constant column gets the deviation 1.

        With `inputs` "target", the other columns are left out.
        """
        columns = tables[0].columns
        if target and target not in columns:
            raise UserError(f"{tables[0].path}: {unknown('column in data.target', target, columns)}")
        if inputs == "target":
            columns = (target or columns[-1],)
        values = np.concatenate([select(table, columns) for table in tables])
        std = values.std(0)
        std[std < 1e-12] = 1.0
        return cls(columns, target or columns[-1], tuple(values.mean(0).tolist()), tuple(std.tolist()))

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Scaling":
        """The inverse of `dataclasses.asdict`, after JSON."""
        numbers = (tuple(map(float, record[name])) for name in ("mean", "std"))
        return cls(tuple(record["columns"]), record["target"], *numbers)

    @property
    def target_column(self) -> int:
        """The index of the column to forecast."""
        return self.columns.index(self.target)

    def standardise(self, table: Table) -> NDArray[np.float32]:
        """Standardise a table, (rows, columns), with the training mean and deviation."""
        return ((select(table, self.columns) - np.array(self.mean)) / np.array(self.std)).astype(np.float32)

    def original(self, values: NDArray[Any]) -> Values:
        """Standardised values of the target in original units."""
        return values.astype(np.float64) * self.std[self.target_column] + self.mean[self.target_column]


@dataclass(frozen=True)
class WindowBatch(UnpaddedBatch):
    """Standardised windows of a time series and their targets, as differences from the last row of a window.

    A position of the network is a patch of rows, one after the other. The network's output times `scale` is compared
    with `targets`.
    """

    src: Float[Tensor, "batch positions inputs"]
    src_mask: Bool[Tensor, "batch positions"]  # all True: windows have one length
    targets: Float[Tensor, "batch horizon"]
    history: Float[Tensor, "batch window"]  # the standardised values of the target column
    scale: Float[Tensor, "batch 1"]  # the deviation by which the window was divided

    @property
    def last(self) -> Float[Tensor, "batch 1"]:
        """The last known value of the target column, subtracted from `targets`."""
        return self.history[:, -1:]

    @property
    def differences(self) -> Float[Tensor, "batch window"]:
        """The values of the target column, less the last one."""
        return self.history - self.last

    @property
    def n_targets(self) -> int:
        return len(self.targets)

    @property
    def n_tokens(self) -> int:
        return self.src_mask.numel()

    @property
    def extent(self) -> str:
        return f"{len(self.targets)} windows of {self.history.size(1)} steps"


@dataclass(frozen=True)
class Windows:
    """All windows of some series, none of which spans two series.

    A window has `window` rows, and its targets are the `horizon` values after it.
    """

    series: tuple[NDArray[np.float32], ...]  # each (rows, columns), standardised
    starts: NDArray[np.int64]  # (windows, 2): series, first row
    window: int
    horizon: int
    target_column: int  # index of the column to forecast
    patch: int = 1  # rows of a position
    scaled: bool = False  # each window is divided by its deviation

    @classmethod
    def of(
        cls,
        tables: Sequence[Table],
        scaling: Scaling,
        window: int,
        horizon: int,
        patch: int = 1,
        scaled: bool = False,
    ) -> "Windows":
        """The windows of some tables; `UserError` if a table is too short for one."""
        starts = []
        for number, table in enumerate(tables):
            count = len(table.values) - window - horizon + 1
            if count < 1:
                raise UserError(
                    f"{display_name(table.path)}: {len(table.values)} rows are too few for a window of {window} and "
                    f"a horizon of {horizon}; lower data.window or data.horizon, or give more rows"
                )
            starts += [(number, start) for start in range(count)]
        series = tuple(scaling.standardise(table) for table in tables)
        return cls(series, np.array(starts), window, horizon, scaling.target_column, patch, scaled)

    def __len__(self) -> int:
        return len(self.starts)

    def load(self, rows: Rows) -> WindowBatch:
        """The batch of some windows."""
        slices = [
            self.series[number][start : start + self.window + self.horizon]
            for number, start in self.starts[rows].tolist()
        ]
        return center_windows(np.stack(slices), self.window, self.target_column, self.patch, self.scaled)

    def _size(self, tokens_per_batch: int) -> int:
        """The number of windows in a batch of `tokens_per_batch` positions, at least 1."""
        return max(1, tokens_per_batch * self.patch // self.window)

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch: every window once, shuffled by (seed, epoch)."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self))
        size = self._size(tokens_per_batch)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def in_order(self, tokens_per_batch: int) -> Iterator[WindowBatch]:
        """Every window once, in order of time."""
        size = self._size(tokens_per_batch)
        for start in range(0, len(self), size):
            yield self.load(np.arange(start, min(start + size, len(self))))


def center_windows(
    values: NDArray[np.float32], window: int, target_column: int, patch: int = 1, scaled: bool = False
) -> WindowBatch:
    """Subtract the last known row from each window and its targets; `values` is (windows, rows, columns).

    Series drift, so the level of a test year may not occur in training. Differences from the last row have no level (as
    in NLinear, arXiv:2205.13504), and a network that outputs zeros repeats the last value. If `scaled`, the differences
    of each column are also divided by their deviation in the window (as in RevIN, Kim et al. 2022). `patch` rows are
    one position (as in PatchTST, arXiv:2211.14730).
    """
    rows = torch.from_numpy(values)
    last = rows[:, window - 1 : window]
    distances = rows - last
    src = distances[:, :window]
    deviation = (src.var(1, keepdim=True) + LEAST_VARIANCE).sqrt() if scaled else torch.ones_like(last)
    src = (src / deviation).reshape(len(src), window // patch, -1)
    mask = torch.ones(src.shape[:2], dtype=torch.bool)
    history, targets = rows[:, :window, target_column], distances[:, window:, target_column]
    return WindowBatch(src, mask, targets, history, deviation[:, :, target_column])


def seasonal_forecast(history: NDArray[Any], horizon: int, season: int) -> NDArray[Any]:
    """The seasonal naive forecast: every step repeats the last known value of its season.

    >>> seasonal_forecast(np.array([[1, 2, 3, 4]]), horizon=5, season=3).tolist()
    [[2, 3, 4, 2, 3]]
    """
    return history[:, -season:][:, np.arange(horizon) % season]
