"""Time series: valid tables, statistics of training only, windows within one series."""

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.errors import UserError
from headwise.pytorch.data.time_series import Scaling, Table, Windows, read_table, select


def table(*columns: list[float], names: str = "ab") -> Table:
    return Table("x.csv", tuple(names[: len(columns)]), np.array(columns, dtype=np.float64).T)


def test_a_date_column_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('date,a,"b, c"\n2016-07-01 00:00:00,1,2.5\n"July, 2nd",-3e1,4\n', encoding="utf-8")
    read = read_table(str(path))
    assert read.columns == ("a", "b, c")
    assert read.values.tolist() == [[1, 2.5], [-30, 4]]
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    assert read_table(str(path)).columns == ("a", "b")


STEPS = [timedelta(minutes=15), timedelta(hours=1), timedelta(days=1), timedelta(days=7), timedelta(days=400)]
SHAPES = [
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M",
    "%Y/%m/%d %H:%M",
    "%d.%m.%Y %H:%M",
    "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
]


@given(
    start=st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)).map(
        lambda one: one.replace(second=0, microsecond=0)
    ),
    step=st.sampled_from(STEPS),
    shape=st.sampled_from(SHAPES),
    change=st.sampled_from(["none", "newest first", "two series", "several rows", "a gap", "no weekends", "names"]),
)
def test_times_are_read(start: datetime, step: timedelta, shape: str, change: str, tmp_path_factory: Any) -> None:
    """30 rows; a note on steps of other lengths, an error for times that fall or occur more than once."""
    times = [start + number * step for number in range(30)]
    texts = {
        "newest first": times[::-1],
        "two series": [*times[:15], *times[:15]],
        "several rows": [time for time in times[:15] for _ in range(2)],
        "a gap": [*times[:20], *times[25:]],
        "no weekends": [start + timedelta(days=number + 2 * (number // 5)) for number in range(30)],
    }.get(change, times)
    shown = [time.strftime(shape) for time in texts] if change != "names" else ["north", "south"] * 15
    path = tmp_path_factory.mktemp("times") / "x.csv"
    path.write_text("time,a\n" + "".join(f"{time},{n}\n" for n, time in enumerate(shown)), encoding="utf-8")
    errors = {
        "newest first": "before .*; sort the rows, oldest first",
        "two series": "line 17: .* before .*; give a file one series|sort the rows",
        "several rows": "lines 2 and 3 have the same time; give a file one series",
        "names": "its first column has 'north' in several rows, so it does not tell the time",
    }
    if change in errors:
        with pytest.raises(UserError, match=errors[change]):
            read_table(str(path))
        return
    read = read_table(str(path))
    assert read.columns == ("a",)
    assert bool(read.note) == (change != "none")
    if read.note:
        first, count = (19, 1) if change == "a gap" else (4, 5)
        assert f"{count} of {len(shown) - 1} steps are not " in read.note
        assert f"long (the first: {shown[first]} to {shown[first + 1]}); rows are taken as equally spaced" in read.note


@pytest.mark.parametrize(
    ("names", "times", "columns", "noted"),
    [
        ("month,a", ["2020-01", "2020-02", "2020-03", "2020-04"], "a", False),
        ("day,a", ["2020-02-29", "2020-03-31", "2020-04-30", "2020-05-31"], "a", False),
        ("year,a", ["1999", "2000", "2001", "2002"], "a", False),
        (",a", ["0", "1", "2", "3"], "a", False),
        ("n,a", ["0", "1", "3", "4"], "na", False),
        ("n", ["0", "1", "2", "3"], "n", False),
        ("hour,a", ["2020-10-25T01:00+02:00", "2020-10-25T02:00+02:00", "2020-10-25T02:00+01:00"], "a", False),
        ("quarter,a", ["2020Q1", "2020Q2", "2020Q3"], "a", False),
        ("day,a", ["2020-02-28", "2020-02-29", "2020-03-02", "2020-03-03"], "a", True),
    ],
)
def test_columns_that_are_times(tmp_path: Path, names: str, times: list[str], columns: str, noted: bool) -> None:
    rows = [f"{time},{n}" if "," in names else time for n, time in enumerate(times)]
    (tmp_path / "x.csv").write_text("\n".join([names, *rows, ""]), encoding="utf-8")
    read = read_table(str(tmp_path / "x.csv"))
    assert ("".join(read.columns), bool(read.note)) == (columns, noted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("date,a\nx,1\ny,\n", "x.csv: line 3: the value of a is missing; fill it in or leave the column out"),
        ("date,a\nx,1\ny,NaN\n", "x.csv: line 3: the value of a is missing"),
        ("date,a\nx,1\ny,1;5\n", "x.csv: line 3: the value of a '1;5' is not a number"),
        ("date,a\nx,inf\n", "x.csv: line 2: the value of a 'inf' is not a number"),
        ("date,a\nx,1\ny\n", "x.csv: line 3 has 1 cells, but the header has 2"),
        ("date,a\n", "x.csv: has a header and no rows"),
        ("1,2\n3,4\n", "x.csv: line 1 must name the columns"),
        ("date\nx\n", "x.csv: line 1 must name the columns"),
        ("", "x.csv: is empty"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        read_table(str(tmp_path / "x.csv"))
    assert message in str(error.value)


def test_the_last_rows_are_split_off() -> None:
    early, late = table([1, 2, 3, 4, 5]).split(0.4)
    assert (early.values.ravel().tolist(), late.values.ravel().tolist()) == ([1, 2, 3], [4, 5])


def test_statistics_are_those_of_training() -> None:
    scaling = Scaling.fit([table([1, 3], [5, 5]), table([5, 7], [5, 5])], target="a")
    assert scaling.mean == (4, 5)
    assert scaling.std == pytest.approx((5**0.5, 1))  # a constant column is left as it is
    other = table([9, 0], [14, 5], names="ba")  # in another order
    assert scaling.standardise(other)[:, 0].tolist() == pytest.approx([10 / 5**0.5, 1 / 5**0.5])
    assert scaling.original(np.array([2.0])).tolist() == pytest.approx([4 + 2 * 5**0.5])
    assert Scaling.of(json.loads(json.dumps(asdict(scaling)))) == scaling


def test_columns_are_selected_by_name() -> None:
    assert Scaling.fit([table([1, 2], [3, 4])], target="").target == "b"
    with pytest.raises(UserError, match=r"x\.csv.*column.*data\.target 'OTT'.*'OT'"):
        Scaling.fit([Table("x.csv", ("OT", "b"), np.zeros((2, 2)))], target="OTT")
    with pytest.raises(UserError, match=r"x\.csv: has no column 'c'; it has a, b"):
        select(table([1], [2]), ["a", "c"])


def test_windows_are_relative_to_their_last_row_and_within_a_series() -> None:
    scaling = Scaling(("a", "b"), "b", (0.0, 0.0), (1.0, 1.0))
    tables = [table([0, 1, 2, 3], [10, 11, 13, 16]), table([50, 51, 52], [90, 80, 70])]
    windows = Windows.of(tables, scaling, window=2, horizon=1)
    assert windows.starts.tolist() == [[0, 0], [0, 1], [1, 0]]
    batch = windows.load(np.array([1, 2]))
    assert batch.last.tolist() == [[13], [80]]
    assert batch.src.tolist() == [[[-1, -2], [0, 0]], [[-1, 10], [0, 0]]]
    assert batch.targets.tolist() == [[3], [-10]]
    assert (batch.n_targets, batch.n_tokens) == (2, 4)
    seen = torch.cat([part.targets + part.last for part in windows.in_order(tokens_per_batch=4)])
    assert seen.ravel().tolist() == [13, 16, 70]


def test_rows_of_a_patch_are_one_position_and_a_scaled_window_has_deviation_one() -> None:
    scaling = Scaling(("a", "b"), "b", (0.0, 0.0), (1.0, 1.0))
    tables = [table([0, 1, 2, 3, 9], [0, 300, 100, 600, 900])]
    plain = Windows.of(tables, scaling, window=4, horizon=1).load(np.array([0]))
    patched = Windows.of(tables, scaling, window=4, horizon=1, patch=2).load(np.array([0]))
    assert patched.src.tolist() == [[[-3, -600, -2, -300], [-1, -500, 0, 0]]]  # two rows, each with both columns
    assert patched.src_mask.tolist() == [[True, True]]
    scaled = Windows.of(tables, scaling, window=4, horizon=1, scaled=True).load(np.array([0]))
    assert scaled.src.std(1).ravel().tolist() == pytest.approx([1, 1], rel=0.02)
    assert torch.allclose(scaled.src[:, :, 1] * scaled.scale, plain.src[:, :, 1])
    for batch in (patched, scaled):  # these keep their units
        assert (batch.targets.tolist(), batch.last.tolist()) == ([[300]], [[600]])
        assert batch.history.tolist() == [[0, 300, 100, 600]]
    still = Windows.of([table([5, 5, 5, 5, 5])], Scaling(("a",), "a", (0.0,), (1.0,)), 4, 1, scaled=True)
    assert still.load(np.array([0])).src.tolist() == [[[0], [0], [0], [0]]]


def test_a_batch_counts_positions() -> None:
    windows = Windows.of([table(list(range(50)))], Scaling(("a",), "a", (0.0,), (1.0,)), window=4, horizon=2, patch=2)
    assert {len(rows) for rows in windows.plan(20, seed=1, epoch=0)[:-1]} == {10}


def test_the_target_alone_can_be_read() -> None:
    scaling = Scaling.fit([table([1, 3], [5, 7])], target="a", inputs="target")
    assert (scaling.columns, scaling.mean) == (("a",), (2,))
    assert Scaling.fit([table([1, 3], [5, 7])], target="", inputs="target").columns == ("b",)


def test_every_window_once_per_epoch_in_a_new_order() -> None:
    windows = Windows.of([table(list(range(50)))], Scaling(("a",), "a", (0.0,), (1.0,)), window=4, horizon=2)
    plans = [windows.plan(40, seed=1, epoch=epoch) for epoch in (0, 1, 0)]
    assert [sorted(np.concatenate(plan).tolist()) for plan in plans] == [list(range(45))] * 3
    assert {len(rows) for rows in plans[0][:-1]} == {10}
    first, second, again = (np.concatenate(plan).tolist() for plan in plans)
    assert first == again != second


def test_too_few_rows() -> None:
    with pytest.raises(UserError, match=r"x\.csv: 5 rows.*window.*4.*horizon.*2"):
        Windows.of([table([1, 2, 3, 4, 5])], Scaling(("a",), "a", (0.0,), (1.0,)), window=4, horizon=2)
