"""Attention over the patches of a picture: as numbers by row and column, as text, and drawn over the picture itself.

Unattended patches are dark. Shares are small, so each is drawn relative to the greatest one, by the square root.
"""

from math import ceil, sqrt
from pathlib import Path

import numpy as np
from jaxtyping import Float

from headwise.view.picture import figure_class
from headwise.view.record import Patches
from headwise.view.terminal import heat_map

DARKEST = 0.85
INCHES = 3.6  # height of the large panel, and of all heads together
MARGIN, TITLE, CAPTION = 0.25, 0.4, 0.22  # inches


def over_patches(
    weights: Float[np.ndarray, "heads queries keys"], patches: Patches, query: str = "class"
) -> Float[np.ndarray, "heads rows columns"]:
    """The attention to each patch: from the class token, if there is one, or on average."""
    one = weights[:, 0] if query == "class" and patches.n_before else weights.mean(1)
    return one[:, patches.n_before :].reshape(len(weights), patches.rows, patches.columns)


def patch_map(shares: Float[np.ndarray, "heads rows columns"], width: int = 80) -> str:
    """The mean of the heads as blocks for the terminal, the greatest share as the darkest."""
    mean = shares.mean(0)
    rows, columns = ([str(n) for n in range(length)] for length in mean.shape)
    drawn = heat_map(mean / max(float(mean.max()), 1e-9), [f"\u2581row {n}" for n in rows], columns, width)
    return (
        f"{drawn}\n  1 is {mean.max():.1%}, the greatest share of a patch; all patches together have {mean.sum():.1%}"
    )


def save_patches(
    shares: Float[np.ndarray, "heads rows columns"], patches: Patches, path: Path, title: str, style: str = "png"
) -> None:
    """Write a picture: the mean of the heads large, each head beside it, unattended patches dark."""
    figure_type = figure_class()
    from matplotlib import rc_context

    height, width, _ = patches.pixels.shape
    panel = INCHES * width / height  # width of the large panel
    n_columns = ceil(sqrt(len(shares))) if len(shares) > 1 else 0
    n_rows = ceil(len(shares) / n_columns) if n_columns else 0
    small = (INCHES - CAPTION * n_rows) / n_rows if n_rows else 0.0
    size = (panel + n_columns * (small * width / height + MARGIN) + 2 * MARGIN, INCHES + TITLE + 2 * MARGIN)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "headwise"}):
        figure = figure_type(figsize=(max(size[0], 5.0), size[1]), facecolor="white")
        whole = tuple(figure.get_size_inches())
        figure.text(MARGIN / whole[0], 1 - MARGIN / whole[1], title, fontsize=11, va="top")
        places = [(MARGIN, MARGIN, INCHES, "")]
        for number in range(len(shares) if n_columns else 0):
            row, column = divmod(number, n_columns)
            left = 2 * MARGIN + panel + column * (small * width / height + MARGIN)
            bottom = MARGIN + INCHES - CAPTION - small - row * (small + CAPTION)
            places.append((left, bottom, small, f"head {number}"))
        for one, (left, bottom, tall, name) in zip([shares.mean(0), *shares], places, strict=False):
            corner = (left / whole[0], bottom / whole[1], tall * width / height / whole[0], tall / whole[1])
            axes = figure.add_axes(corner)
            axes.imshow(darkened(patches.pixels, one), interpolation="nearest")
            axes.set_title(name, fontsize=8, loc="left", pad=2)
            axes.set_axis_off()
        figure.savefig(path, format=style, dpi=200)


def darkened(pixels: np.ndarray, shares: Float[np.ndarray, "rows columns"]) -> np.ndarray:
    """The picture, each patch as bright as its share of the greatest one."""
    height, width, _ = pixels.shape
    light = 1 - DARKEST * (1 - np.sqrt(shares / max(float(shares.max()), 1e-9)))
    rows = np.minimum(np.arange(height) * len(shares) // height, len(shares) - 1)
    columns = np.minimum(np.arange(width) * shares.shape[1] // width, shares.shape[1] - 1)
    return (pixels * light[np.ix_(rows, columns)][..., None]).round().astype(np.uint8)
