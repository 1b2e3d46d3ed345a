"""Sightline: train a translator on your own files, translate with it, and see what it attends to.

>>> import sightline
>>> model = sightline.load("runs/ende")  # doctest: +SKIP
>>> model.translate(["A dog runs."], beam_size=4)[0].text  # doctest: +SKIP
'Ein Hund rennt.'

Importing the package is cheap: torch is loaded when it is first needed.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sightline.version import __version__

if TYPE_CHECKING:
    from sightline.decode.translator import Translation
    from sightline.errors import UserError
    from sightline.models.load import load
    from sightline.models.model import Model
    from sightline.tasks.train import train

_HOMES = {
    "Model": "sightline.models.model",
    "Translation": "sightline.decode.translator",
    "UserError": "sightline.errors",
    "load": "sightline.models.load",
    "train": "sightline.tasks.train",
}
__all__ = ["Model", "Translation", "UserError", "__version__", "load", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sightline' has no attribute '{name}'")
    collects = gc.isenabled()
    gc.disable()  # modules are no garbage: to look for some among them takes a tenth of a first translation
    try:
        return getattr(import_module(_HOMES[name]), name)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
