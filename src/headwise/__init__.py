"""Headwise: train a translator on your own files, translate with it, and see what it attends to.

>>> import headwise
>>> model = headwise.load("runs/ende")  # doctest: +SKIP
>>> model.translate(["A dog runs."], beam_size=4)[0].text  # doctest: +SKIP
'Ein Hund rennt.'

Importing the package is cheap: torch is loaded when it is first needed.
"""

import gc
from typing import TYPE_CHECKING, Any

from headwise.importing import named
from headwise.version import __version__

if TYPE_CHECKING:
    from headwise.errors import UserError
    from headwise.evaluate.logs import training_history
    from headwise.models.kinds import AnyModel as Model
    from headwise.models.load import load
    from headwise.pytorch.tasks.train import train
    from headwise.pytorch.training.callbacks import Callback
    from headwise.runtime.search.translator import Translation

_HOMES = {
    "Callback": "headwise.pytorch.training.callbacks",
    "Model": "headwise.models.model",
    "Translation": "headwise.runtime.search.translator",
    "UserError": "headwise.errors",
    "load": "headwise.models.load",
    "train": "headwise.pytorch.tasks.train",
    "training_history": "headwise.evaluate.logs",
}
__all__ = ["Callback", "Model", "Translation", "UserError", "__version__", "load", "train", "training_history"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwise' has no attribute '{name}'")
    collects = gc.isenabled()
    gc.disable()  # modules are no garbage: to look for some among them takes a tenth of a first translation
    try:
        return named(f"{_HOMES[name]}:{name}", f"headwise.{name}")
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return __all__
