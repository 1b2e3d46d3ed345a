"""One reader of folders with models, whichever layout they are in: what is in one is a `Folder`.

Which files a model has, and what must fit together in them, is the layout's affair: ours (`trained`), that of Hugging
Face and what `headwise import` makes of it (`imported`). Whoever is handed a `Folder` need not ask. Of our own nothing
here needs torch but the network itself, when it is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Folder:
    """What a folder with a model holds, read and checked."""

    path: Path
    config: Any  # `RunConfig` of a model that Headwise has trained; of a published one the axes of its network
    about: dict[str, Any]  # the rest of config.json: versions, recipe, corpus; of a published one all of it
    device: str
    weights: Any  # `.network` is the torch module in evaluation mode; of our own it is a `Trained`
    read_tokenizer: Callable[[], Any]

    @property
    def network(self) -> Any:
        """The torch module."""
        return self.weights.network

    @cached_property
    def tokenizer(self) -> Any:
        """Between texts and ids; a `UserError` where a published model comes without, None where nothing is text."""
        return self.read_tokenizer()
