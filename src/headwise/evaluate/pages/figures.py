"""Line plots with bands, in the colours of Okabe and Ito, with a marker and a dash style for each line.

This uses matplotlib without pyplot, so it needs no window system. See `study` and `results` for the data and
`view/picture.py` for pictures of attention.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError
from headwise.evaluate.pages.statistics import Estimate, Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, GREY, GRID = "#1b2530", "#5c6670", "#e3e7eb"
# https://jfly.uni-koeln.de/color/ (Okabe and Ito 2008); the yellow is too pale for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2), (9, 2), (3, 1), (1, 3))
# A network has the same style in every figure; other lines are styled in order.
STYLES = {"transformer": 0, "lstm": 1, "conv": 2, "bahdanau": 3, "luong": 4, "gru": 5, "rnn": 6}
PANEL_WIDTH, PANEL_HEIGHT, DPI = 4.7, 4.1, 130  # inches, inches, dots per inch


@dataclass(frozen=True)
class Series:
    """One line of a panel, a point per x. `name` decides colour, marker and dash, the same in every figure.

    A `thin` line has the colour of the line before it, no markers and no band.
    """

    name: str
    x: Numbers
    y: Sequence[Estimate]
    thin: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Labels carry their units; `marks` are vertical lines by name, `levels` horizontal ones."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = True
    log_y: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    y_range: tuple[float | int, float | int] | None = None


@dataclass(frozen=True)
class Figure:
    """Panels side by side, with a caption and an alternative text."""

    name: str  # of the PNG file
    caption: str
    alt: str
    panels: Sequence[Panel]


def render_figure(figure: Figure, style: str = "png") -> bytes:
    """The picture of a figure, "png" or "svg"."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise UserError('figures need matplotlib: pip install "headwise[plots]"') from None
    columns = min(2, len(figure.panels))
    lines = math.ceil(len(figure.panels) / columns)
    size = (max(PANEL_WIDTH * columns, 6.4), PANEL_HEIGHT * lines)
    canvas = Canvas(figsize=size, dpi=DPI, facecolor="white", layout="constrained")
    grid = canvas.add_gridspec(lines, columns)
    for number, panel in enumerate(figure.panels):
        alone = number == len(figure.panels) - 1 and number % columns == 0  # the last one has a row to itself
        _draw_panel(canvas.add_subplot(grid[number // columns, :] if alone else grid[number]), panel)
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "headwise"}):
        canvas.savefig(file, format=style, metadata={"Date": None} if style == "svg" else None)
    return file.getvalue()


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    spare = iter(_spare_styles([line for line in panel.series if not line.thin]))
    place = 0
    for line in panel.series:
        if not line.thin:
            fallback = next(spare)
            place = STYLES.get(line.name, fallback)
        _draw_series(axes, line, place)
    for name, x in panel.marks.items():
        axes.axvline(x, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(
            name, (x, 0.98), xycoords=("data", "axes fraction"), rotation=90, ha="right", va="top", **_small()
        )
    for name, y in panel.levels.items():
        axes.axhline(y, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(name, (0.99, y), xycoords=("axes fraction", "data"), ha="right", va="bottom", **_small())
    axes.set_title(panel.title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel(panel.x_label, fontsize=9, color=INK)
    axes.set_ylabel(panel.y_label, fontsize=9, color=INK)
    _scale(axes, panel)
    # Below the axes, where it hides nothing; long names need fewer columns.
    columns = 2 if max(len(line.name) for line in panel.series) > 12 else 4
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": columns}
    axes.legend(fontsize=8, frameon=False, handlelength=3.4, columnspacing=1.4, **place)


def _spare_styles(lines: Sequence[Series]) -> list[int]:
    """A style for each line without a fixed one, not used by another line."""
    taken = {STYLES[line.name] for line in lines if line.name in STYLES}
    free = [place for place in range(len(COLOURS)) if place not in taken] or [0]
    return [free[i % len(free)] for i in range(len(lines))]


def _draw_series(axes: "Axes", line: Series, place: int) -> None:
    y = [point.value for point in line.y]
    colour = COLOURS[place % len(COLOURS)]
    if line.thin:
        axes.plot(line.x, y, label=line.name, linewidth=0.8, color=colour)
        return
    style: dict[str, Any] = {"color": colour, "marker": MARKERS[place % len(MARKERS)], "markersize": 4.5}
    axes.plot(line.x, y, label=line.name, linewidth=1.6, dashes=DASHES[place % len(DASHES)] or (None, None), **style)
    low = [point.low if math.isfinite(point.low) else point.value for point in line.y]
    high = [point.high if math.isfinite(point.high) else point.value for point in line.y]
    axes.fill_between(line.x, low, high, color=colour, alpha=0.15, linewidth=0)


def _scale(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator, NullLocator

    if panel.log_x:
        axes.set_xscale("log", base=2)
        ticks = _apart([x for line in panel.series for x in line.x])
        axes.set_xticks(ticks, [_short(x) for x in ticks], rotation=45 if len(ticks) > 7 else 0)
        axes.xaxis.set_minor_locator(NullLocator())
    elif all(float(x).is_integer() for line in panel.series for x in line.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # no halves of a seed or an update
    if panel.log_y:
        axes.set_yscale("log")
        _log_y(axes, [point.value for line in panel.series for point in line.y if point.value > 0])
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
    axes.grid(which="major", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _log_y(axes: "Axes", heights: Sequence[float]) -> None:
    """Limits around the lines, not the bands, which can touch zero; plain numbers if there are few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = min(heights), max(heights)
    room = 1.15 if high < 10 * low else 1.8
    axes.set_ylim(low / room, high * room)
    if high < 100 * low:
        subs = (1, 1.5, 2, 3, 5, 7) if high < 5 * low else (1, 2, 5)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short(y)))
        axes.yaxis.set_minor_locator(NullLocator())


def _apart(values: Sequence[float | int]) -> list[float]:
    """Ascending, without those whose labels would overlap.

    >>> _apart([16, 64, 66, 16])
    [16.0, 64.0]
    """
    kept: list[float] = []
    for x in sorted(values):
        if not kept or x > 1.3 * kept[-1]:
            kept.append(float(x))
    return kept


def _short(x: float | int) -> str:
    """A short number for a tick.

    >>> _short(512), _short(102_400), _short(1_048_576), _short(0.05)
    ('512', '102k', '1.05M', '0.05')
    """
    if x >= 1e6:
        return f"{x / 1e6:.3g}M"
    return f"{x / 1e3:.0f}k" if x >= 1e4 else f"{x:,.4g}"


def _small() -> dict[str, Any]:
    return {"fontsize": 7.5, "color": GREY, "annotation_clip": True}
