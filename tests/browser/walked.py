"""Pages with walks through small random networks of every family, for the tests of the view Walk."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from tiny_families import write_tiny

import headwise
from headwise.evaluate.pages.document import inspection_page
from headwise.models.model import Model
from headwise.view.page.contents import page_contents

TWO_LAYERS = {
    "bert": {"num_hidden_layers": 2},
    "gpt2": {"n_layer": 2},
    "llama": {"num_hidden_layers": 2},
    "t5": {"num_layers": 2},
    "gpt_neox": {},
}
TEXT, TRANSLATION = "A dog", "Hund"


def page_of(model: Model, full: bool = False) -> str:
    """The page of `headwise inspect` for one text."""
    given = {"tgt": TRANSLATION} if model.reads == "pairs" else {}
    record, trace = model.look_inside(TEXT, **given)
    return inspection_page([page_contents(record, trace, "a model", walks=model.walks(TEXT, **given), full_walk=full)])


def page_writer(folder: Path) -> Callable[[str], Path]:
    """Writes the page of a family, once."""

    @cache
    def write(family: str) -> Path:
        model = folder / family
        model.mkdir()
        write_tiny(model, family, TWO_LAYERS[family])
        path = folder / f"{family}.html"
        path.write_text(page_of(headwise.load(model)), encoding="utf-8")
        return path

    return write
