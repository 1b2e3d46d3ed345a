"""Figures of the results, with colours for colour-blind readers (Okabe and Ito) and units on every axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def bars(
    path: Path, panels: Mapping[str, Mapping[str, tuple[float, float, float]]], label: str, limit: float | None = None
) -> Path:
    """Horizontal bars, one panel per entry, three panels per row; a value is (low, median, high). Returns the .png."""
    plt = _pyplot()
    count = max(len(panel) for panel in panels.values())
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    size = max(4.6 * columns, 5.0), (1.2 + 0.32 * count) * rows
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, (title, panel) in zip(axes.flat, panels.items(), strict=False):
        names = list(panel)[::-1]
        low, median, high = zip(*(panel[name] for name in names), strict=True)
        errors = [
            [m - lo for m, lo in zip(median, low, strict=True)],
            [hi - m for hi, m in zip(high, median, strict=True)],
        ]
        colours = [COLOURS[0] if name.startswith("ours") else COLOURS[1] for name in names]
        axis.barh(names, median, xerr=errors, color=colours, error_kw={"ecolor": "#444444", "capsize": 2})
        axis.set_xlim(0, limit)
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel(label)
    return _save(figure, path)


def lines(path: Path, panels: Sequence[Mapping[str, Any]]) -> Path:
    """Log-log curves. A panel has `title`, `x`, `y` (axis labels) and `curves`: name -> (xs, ys). Returns the .png."""
    plt = _pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        for i, (name, (xs, ys)) in enumerate(panel["curves"].items()):
            axis.plot(xs, ys, color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], label=name)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(panel["title"])
        axis.set_xlabel(panel["x"])
        axis.set_ylabel(panel["y"])
        axis.grid(True, which="major", color="#dddddd")
        axis.legend(fontsize=8)
    return _save(figure, path)


def learning_curves(path: Path, curves: Mapping[str, Sequence[tuple[int, float]]], x: str, y: str) -> Path:
    """One curve of (x, y) points per entry; axes start at 0. Returns the .png."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(6.4, 4.2))
    for i, (name, points) in enumerate(curves.items()):
        xs, ys = zip(*points, strict=True) if points else ((), ())
        axis.plot(xs, ys, color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], label=name)
    axis.set_xlim(0)
    axis.set_ylim(0)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(True, color="#dddddd")
    axis.legend(fontsize=8)
    return _save(figure, path)


def training_figure(path: Path, measured: Sequence[Any]) -> Path:
    """Share of the matrix-product rate of every contender, one panel per size."""
    panels = {}
    for m in measured:
        shares = {name: m.share(name) for name in m.seconds}
        panels[m.size] = {name: (100 * s.low, 100 * s.median, 100 * s.high) for name, s in shares.items()}
    return bars(path, panels, "% of the float32 matrix-product rate")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure: Any, path: Path) -> Path:
    target = path.with_suffix(".png")
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    return target
