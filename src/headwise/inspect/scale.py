"""The colour scale of attention weights, the same in pictures and on pages: `page/assets/scale.css` defines it."""

import re
from importlib import resources

STOP = re.compile(r"--scale-\d: light-dark\((#[0-9a-f]{6}), #[0-9a-f]{6}\);")


def light_scale() -> tuple[str, ...]:
    """The colours of weights on white, from 0 to 1, at equal distances.

    >>> light_scale()[0]
    '#f3f5f8'
    """
    sheet = resources.files("headwise.inspect.page").joinpath("assets", "scale.css")
    return tuple(STOP.findall(sheet.read_text(encoding="utf-8")))
