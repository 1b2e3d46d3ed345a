"""Time series: read a CSV file with a header, standardise its columns, and cut it into windows with their targets.

A first column of dates, of other names, or of equally spaced numbers is the time; all other columns must be numeric.
Rows are equally spaced in time, oldest first: times that say otherwise are an error or a note. Training is in
`headwise.pytorch.tasks.forecasting`.
"""

import csv
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
MONTH = 27 * 86_400.0  # seconds of the shortest step between months, quarters and years, which differ in length
SAME_TIMES = 0.01  # share of rows from which equal times are an error; an hour of the autumn occurs twice
FORMATS = ("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")
FORMATS += tuple(f"{date}{time}" for date in ("%m/%d/%Y", "%d/%m/%Y") for time in ("", " %H:%M", " %H:%M:%S"))
DATES: list[Callable[[str], datetime]] = [  # of which one must fit all rows
    lambda text: datetime.fromisoformat(text.replace("/", "-")),
    lambda text: datetime.fromisoformat(f"{text.replace('/', '-')}-01"),  # months
    *(lambda text, form=form: datetime.strptime(text, form) for form in FORMATS),
]
LEAST_VARIANCE = 1e-5  # added to that of a window, which may be constant; the value is RevIN's


@dataclass(frozen=True)
class Table:
    """The numeric columns of a file."""

    path: str
    columns: tuple[str, ...]
    values: Values  # (rows, columns)
    note: str = ""  # about its times

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
        every = [first, *rows]
        times = [row[0].strip() if row else "" for row in every]
        start = 1 if not _is_number(times[0]) or (len(header) > 1 and _is_index(times)) else 0
        columns = tuple(column.strip() for column in header[start:])
        values = [_numbers(row, header, start, name, line) for line, row in enumerate(every, start=2)]
    except csv.Error as error:
        raise UserError(f"{name}: not a CSV file ({error})") from None
    if not columns or any(map(_is_number, columns)):
        raise UserError(f"{name}: line 1 must name the columns, for example 'date,load,temperature'")
    return Table(path, columns, np.array(values), check_times(times, name) if not _is_number(times[0]) else "")


def _is_index(cells: Sequence[str]) -> bool:
    """Whether a column counts the rows: three or more numbers that grow in equal steps, such as years."""
    steps = np.diff([float(cell) for cell in cells]) if all(map(_is_number, cells)) else np.zeros(1)
    return len(steps) > 1 and steps[0] > 0 and bool(np.all(steps == steps[0]))


def check_times(times: Sequence[str], name: str) -> str:
    """A note on steps of unequal length; "" if there are none, or if the times are other names than dates.

    Raises:
        UserError: the times fall, or are the same in several rows.
    """
    found = [seconds for parse in DATES if (seconds := _seconds(times, parse)) is not None]
    if not found:
        again = next((time for time, count in Counter(times).items() if count > 1), "")
        if again:
            what = f"its first column has '{again}' in several rows, so it does not tell the time"
            raise UserError(f"{name}: {what}; give a file one series, or leave the column out")
        return ""
    steps = min((np.diff(seconds) for seconds in found), key=lambda steps: (steps < 0).sum())
    if len(back := np.flatnonzero(steps < 0)):
        row = int(back[0])
        what = f"line {row + 3}: {times[row + 1]} is before {times[row]}"
        raise UserError(f"{name}: {what}; sort the rows, oldest first, and give a file one series")
    if len(same := np.flatnonzero(steps == 0)) > SAME_TIMES * len(times):
        row = int(same[0])
        raise UserError(f"{name}: lines {row + 2} and {row + 3} have the same time; give a file one series")
    usual = float(np.median(steps)) if len(steps) else 0.0
    uneven = np.flatnonzero(abs(steps - usual) > (0.15 if usual > MONTH else 0.01) * usual)
    if not len(uneven):
        return ""
    shown, row = timedelta(seconds=usual), int(uneven[0])
    what = f"{len(uneven):,} of {len(steps):,} steps are not {shown} long (the first: {times[row]} to {times[row + 1]})"
    return f"{name}: {what}; rows are taken as equally spaced"


def _seconds(times: Sequence[str], parse: Callable[[str], datetime]) -> Values | None:
    """Seconds from the first of some times; None if one cannot be parsed so."""
    try:
        dates = [parse(time) for time in times]
        return np.array([(date - dates[0]).total_seconds() for date in dates])
    except (ValueError, TypeError, OverflowError):  # `TypeError` for times with and without a zone
        return None


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
