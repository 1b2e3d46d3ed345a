"""Time series: a CSV file with a header to standardised windows, each with the values that came after it.

The first column is left out where it holds no numbers (a date); every other must be numeric throughout. Rows are
equally spaced in time, oldest first. Not here: what is learnt from windows (`headwise.tasks.forecasting`).
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

from headwise.data.batch import DeviceBatch
from headwise.data.batch_planning import Rows
from headwise.data.corpus import read_lines
from headwise.data.sources import display_name
from headwise.errors import UserError, unknown

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """The numeric columns of a file."""

    path: str
    columns: tuple[str, ...]
    values: Values  # (rows, columns)

    @property
    def key(self) -> str:
        """Hash of everything in it."""
        return hashlib.sha256(repr(self.columns).encode() + self.values.tobytes()).hexdigest()[:32]

    def split(self, share: float) -> tuple["Table", "Table"]:
        """The earlier rows, and the last `share` of them."""
        border = len(self.values) - round(share * len(self.values))
        return (
            Table(self.path, self.columns, self.values[:border]),
            Table(self.path, self.columns, self.values[border:]),
        )


def read_table(path: str) -> Table:
    """The table in a CSV file, also `.gz`.

    Raises:
        UserError: a cell is missing or no number, a row has another number of cells, or there is no row at all.
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
            what = "is missing" if cell.strip().lower() in ("", "nan", "na", "null") else f"'{cell}' is no number"
            raise UserError(f"{name}: line {line}: the value of {column} {what}; fill it in or leave the column out")
    return [float(cell) for cell in row[start:]]


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def select(table: Table, columns: Sequence[str]) -> Values:
    """The values of these columns, in this order, whatever else a table has."""
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UserError(f"{display_name(table.path)}: has no column '{missing[0]}'; it has {', '.join(table.columns)}")
    return table.values[:, [table.columns.index(column) for column in columns]]


@dataclass(frozen=True)
class Scaling:
    """Columns of a series, the one to forecast, and the statistics they are standardised with: those of training."""

    columns: tuple[str, ...]
    target: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def learn(cls, tables: Sequence[Table], target: str) -> "Scaling":
        """From training tables; `target` "" is the last column. A constant column has the standard deviation 1."""
        columns = tables[0].columns
        if target and target not in columns:
            raise UserError(f"{tables[0].path}: {unknown('column in data.target', target, columns)}")
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
        """Which column is forecast."""
        return self.columns.index(self.target)

    def standardise(self, table: Table) -> NDArray[np.float32]:
        """(rows, columns), with mean 0 and standard deviation 1 where the table is the one of training."""
        return ((select(table, self.columns) - np.array(self.mean)) / np.array(self.std)).astype(np.float32)

    def original(self, values: NDArray[Any]) -> Values:
        """Standardised values of the target in its own units."""
        return values.astype(np.float64) * self.std[self.target_column] + self.mean[self.target_column]


@dataclass(frozen=True)
class WindowBatch(DeviceBatch):
    """Windows of a time series, standardised, and what came after each: all as distances from a window's last row."""

    src: Float[Tensor, "batch window columns"]
    src_mask: Bool[Tensor, "batch window"]  # True throughout: windows have one length
    targets: Float[Tensor, "batch horizon"]
    last: Float[Tensor, "batch 1"]  # the last known value of the target column, from which `targets` are measured

    @property
    def n_targets(self) -> int:
        """Windows: what the loss is a sum over."""
        return len(self.targets)

    @property
    def n_tokens(self) -> int:
        """Steps read: what speed is counted in."""
        return self.src_mask.numel()

    @property
    def n_real(self) -> int:
        """Every cell is real."""
        return self.src_mask.numel()

    @property
    def n_cells(self) -> int:
        """Steps read."""
        return self.src_mask.numel()

    @property
    def extent(self) -> str:
        """How large it is, in words."""
        return f"{len(self.targets)} windows of {self.src.size(1)} steps"


@dataclass(frozen=True)
class Windows:
    """Every window of some series; none reaches from one series into another.

    Window i reads `window` rows and is followed by `horizon` values of the target.
    """

    series: tuple[NDArray[np.float32], ...]  # each (rows, columns), standardised
    starts: NDArray[np.int64]  # (windows, 2): series, first row
    window: int
    horizon: int
    target_column: int  # the one to forecast

    @classmethod
    def of(cls, tables: Sequence[Table], scaling: Scaling, window: int, horizon: int) -> "Windows":
        """The windows of some tables; `UserError` where a table is too short for one."""
        starts = []
        for number, table in enumerate(tables):
            count = len(table.values) - window - horizon + 1
            if count < 1:
                raise UserError(
                    f"{display_name(table.path)}: {len(table.values)} rows are too few for a window of {window} and "
                    f"{horizon} after it; lower data.window or data.horizon, or give more rows"
                )
            starts += [(number, start) for start in range(count)]
        series = tuple(scaling.standardise(table) for table in tables)
        return cls(series, np.array(starts), window, horizon, scaling.target_column)

    def __len__(self) -> int:
        return len(self.starts)

    def load(self, rows: Rows) -> WindowBatch:
        """The batch of some windows."""
        pieces = [
            self.series[number][start : start + self.window + self.horizon]
            for number, start in self.starts[rows].tolist()
        ]
        return center_windows(np.stack(pieces), self.window, self.target_column)

    def plan(self, tokens_per_batch: int, seed: int, epoch: int) -> list[Rows]:
        """The batches of an epoch: every window once, in an order drawn from (seed, epoch)."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self))
        size = max(1, tokens_per_batch // self.window)
        return [order[start : start + size] for start in range(0, len(order), size)]

    def in_order(self, tokens_per_batch: int) -> Iterator[WindowBatch]:
        """Every window once, in the order of time."""
        size = max(1, tokens_per_batch // self.window)
        for start in range(0, len(self), size):
            yield self.load(np.arange(start, min(start + size, len(self))))


def center_windows(values: NDArray[np.float32], window: int, target_column: int) -> WindowBatch:
    """Windows, (windows, rows, columns), and the rows after them, measured from each window's last row.

    Series drift: levels of a test year need not occur in training. What is measured from the last known row has no
    level (as in NLinear, arXiv:2205.13504), and a network that puts out zeros repeats the last value.
    """
    rows = torch.from_numpy(values)
    last = rows[:, window - 1 : window]
    distances = rows - last
    src = distances[:, :window]
    mask = torch.ones(src.shape[:2], dtype=torch.bool)
    return WindowBatch(src, mask, distances[:, window:, target_column], last[:, :, target_column])


def seasonal_forecast(history: NDArray[Any], horizon: int, season: int) -> NDArray[Any]:
    """The naive forecast: the value one season before, or two where one season before is not known yet, and so on.

    >>> seasonal_forecast(np.array([[1, 2, 3, 4]]), horizon=5, season=3).tolist()
    [[2, 3, 4, 2, 3]]
    """
    return history[:, -season:][:, np.arange(horizon) % season]
