"""Attention as a figure for papers and slides: PNG, SVG or PDF, drawn by matplotlib.

The interactive page is `page/`, the heat map for a terminal `terminal.py`.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headwise.errors import UserError
from headwise.view.fonts import fonts_for, missing_font_warning
from headwise.view.labels import continues, token_label, width_of

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.image


INK, GREY, LINE = "#1b2530", "#5f6b77", "#d5dae0"

# All lengths in inches.
CELL = 0.30
MARGIN = 0.30
TITLE = 0.45
AXIS_NAME = 0.30
SCALE = 0.75  # height of the strip with the colour scale
GAP = 0.34  # between the panels of the heads; holds a panel's title
DATES: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}  # left out: equal files
LARGEST = 8000  # pixels of a PNG's longer side, about
LETTER = 0.078  # mean width of a letter at 9 points, rounded up
TITLE_LETTER = 0.100  # the same at 12 points
SCALE_WIDTH = 2.0  # of the bar of colours
SCALE_TEXT = "share of the attention; large: mean of the heads"
STOP = re.compile(r"--scale-\d: light-dark\((#[0-9a-f]{6}), #[0-9a-f]{6}\);")


@dataclass(frozen=True)
class FigureLayout:
    """Positions of all parts, in inches from the lower left corner of the figure."""

    width: float
    height: float
    left: float
    bottom: float
    main_width: float
    main_height: float
    n_columns: int
    n_rows: int

    @property
    def panel_height(self) -> float:
        """The heads' panels together are as high as the main one, and have its proportions."""
        return (self.main_height - (self.n_rows - 1) * GAP) / self.n_rows

    @property
    def panel_width(self) -> float:
        return self.panel_height * self.main_width / self.main_height

    def panel(self, number: int) -> tuple[float, float]:
        """The lower left corner of a head's panel, counted from 0 row by row."""
        row, column = divmod(number, self.n_columns)
        left = self.left + self.main_width + 2 * GAP + column * (self.panel_width + GAP)
        top = self.bottom + self.main_height - row * (self.panel_height + GAP)
        return left, top - self.panel_height


def save_attention(
    weights: Float[np.ndarray, "heads query key"],
    queries: Sequence[str],
    keys: Sequence[str],
    path: Path,
    title: str,
    axes: tuple[str, str] = ("translation", "source"),
    style: str = "png",
) -> str:
    """Write a picture, "png", "svg" or "pdf": the mean of the heads large, each head beside it.

    `weights` are probabilities over the keys, for each head and query; a single head is drawn alone. Blanks in front of
    tokens are not drawn; tokens that continue a word are grey. `axes` names rows and columns. Returns a warning about
    characters that no installed font has, which are boxes in a PNG or PDF; an SVG keeps its text as text.
    """
    if weights.shape[1:] != (len(queries), len(keys)):
        raise ValueError(f"weights {weights.shape} for {len(queries)} queries and {len(keys)} keys")
    figure_type = figure_class()
    from matplotlib import rc_context

    rows, columns = [token_label(piece) for piece in queries], [token_label(piece) for piece in keys]
    layout = _lay_out(len(weights), columns, rows, title)
    fonts = fonts_for([*rows, *columns, title])
    settings: Any = {
        "font.family": fonts.names,
        "svg.fonttype": "none",
        "svg.hashsalt": "headwise",
    }
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = figure_type(figsize=(layout.width, layout.height), facecolor="white")
        figure.text(MARGIN / layout.width, 1 - MARGIN / layout.height, title, color=INK, fontsize=12, va="top")
        image = _draw_mean(figure, layout, weights.mean(axis=0), columns, rows, axes)
        _colour_labels(image.axes, keys, queries)
        if len(weights) > 1:
            _draw_heads(figure, layout, weights)
        _draw_scale(figure, layout, image, len(weights))
        dpi = min(200.0, LARGEST / max(layout.width, layout.height))
        figure.savefig(path, format=style, dpi=dpi, metadata=DATES.get(style))
    return "" if style == "svg" else missing_font_warning(fonts.missing)


def _lay_out(n_heads: int, columns: Sequence[str], rows: Sequence[str], title: str) -> FigureLayout:
    main_width, main_height = len(columns) * CELL, len(rows) * CELL
    wide = max(1.0, main_width / main_height)  # with many columns the heads stand below one another
    room = max(1, int((main_height + GAP) / (CELL + GAP)))  # beside few rows only as many panels as are legible
    n_rows = min(room, max(2, min(n_heads, ceil(sqrt(n_heads * wide)))))
    n_columns = ceil(n_heads / n_rows)
    left = MARGIN + AXIS_NAME + LETTER * max(map(width_of, rows))
    over = TITLE + AXIS_NAME + LETTER * max(map(width_of, columns)) + MARGIN
    body = FigureLayout(0.0, main_height + over + SCALE, left, SCALE, main_width, main_height, n_columns, n_rows)
    right_edge = body.panel(n_columns - 1)[0] + body.panel_width if n_heads > 1 else left + main_width
    below = left + 1.05 * SCALE_WIDTH + LETTER * len(_scale_text(n_heads)) + MARGIN
    width = max(right_edge + MARGIN, TITLE_LETTER * width_of(title) + 2 * MARGIN, below)
    return replace(body, width=width)


def _place(
    figure: "matplotlib.figure.Figure",
    layout: FigureLayout,
    left: float,
    bottom: float,
    width: float,
    height: float,
) -> "matplotlib.axes.Axes":
    w, h = layout.width, layout.height
    return figure.add_axes((left / w, bottom / h, width / w, height / h))


def _draw_mean(
    figure: "matplotlib.figure.Figure",
    layout: FigureLayout,
    mean: Float[np.ndarray, "query key"],
    columns: Sequence[str],
    rows: Sequence[str],
    names: tuple[str, str],
) -> "matplotlib.image.AxesImage":
    axes = _place(figure, layout, layout.left, layout.bottom, layout.main_width, layout.main_height)
    image = _draw_weights(axes, mean)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=9)
    axes.set_yticks(range(len(rows)), rows, fontsize=9)
    axes.set_xlabel(names[1], color=GREY, fontsize=9, labelpad=8, loc="left")
    axes.set_ylabel(names[0], color=GREY, fontsize=9, labelpad=8, loc="top")
    # White lines between the cells, as on squared paper.
    axes.set_xticks(np.arange(1, len(columns)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    return image


def _colour_labels(axes: "matplotlib.axes.Axes", keys: Sequence[str], queries: Sequence[str]) -> None:
    """Dark where a word begins (and for special tokens like `</s>`), grey where it continues."""
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    for text, piece in zip(labels, [*keys, *queries], strict=True):
        text.set_color(GREY if continues(piece) else INK)


def _draw_heads(
    figure: "matplotlib.figure.Figure", layout: FigureLayout, weights: Float[np.ndarray, "heads query key"]
) -> None:
    for number, head in enumerate(weights):
        axes = _place(figure, layout, *layout.panel(number), layout.panel_width, layout.panel_height)
        _draw_weights(axes, head)
        axes.set_title(f"head {number}", color=GREY, fontsize=8, pad=4, loc="left")
        axes.set_xticks([])
        axes.set_yticks([])


def _draw_weights(
    axes: "matplotlib.axes.Axes", weights: Float[np.ndarray, "query key"]
) -> "matplotlib.image.AxesImage":
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    colours = LinearSegmentedColormap.from_list("ink", light_scale())
    for spine in axes.spines.values():
        spine.set(color=LINE, linewidth=0.6)
    roots = PowerNorm(0.5, 0.0, 1.0)  # small weights stronger than they are, as on the page
    return axes.imshow(weights, cmap=colours, norm=roots, interpolation="nearest", aspect="auto")


def _draw_scale(
    figure: "matplotlib.figure.Figure", layout: FigureLayout, image: "matplotlib.image.AxesImage", n_heads: int
) -> None:
    axes = _place(figure, layout, layout.left, SCALE - 0.30, SCALE_WIDTH, 0.09)
    scale = figure.colorbar(image, cax=axes, orientation="horizontal")
    scale.set_ticks([0.0, 0.5, 1.0], labels=["0", "½", "1"])
    axes.tick_params(length=0, labelsize=8, labelcolor=GREY)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.text(
        1.05,
        0.5,
        _scale_text(n_heads),
        transform=axes.transAxes,
        color=GREY,
        fontsize=8,
        va="center",
    )


def _scale_text(n_heads: int) -> str:
    return SCALE_TEXT if n_heads > 1 else SCALE_TEXT.partition(";")[0]


def figure_class() -> "type[matplotlib.figure.Figure]":
    """The figure class without pyplot, which needs a window system and keeps a list of open figures.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError('the picture needs matplotlib: pip install "headwise[plots]"') from None
    return Figure


def light_scale() -> tuple[str, ...]:
    """The colours of weights on white, from 0 to 1, at equal distances.

    >>> light_scale()[0]
    '#f3f5f8'
    """
    sheet = resources.files("headwise.view.page").joinpath("assets", "scale.css")
    return tuple(STOP.findall(sheet.read_text(encoding="utf-8")))
