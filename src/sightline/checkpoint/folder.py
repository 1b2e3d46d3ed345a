"""One reader of folders with models, whichever layout they are in: what is in one is a `Folder`.

Which files a model has, and what must fit together in them, is the layout's affair: ours (`trained`), that of Hugging
Face and what `sightline import` makes of it (`imported`). Whoever is handed a `Folder` need not ask. Of our own nothing
here needs torch but the network itself, when it is asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.checkpoint.hub import folder_of
from sightline.checkpoint.layout import is_family
from sightline.checkpoint.manifest import Digests
from sightline.checkpoint.trained import PACKED, WEIGHTS, Trained, read_tokenizer, read_weights, settings_for


@dataclass(frozen=True)
class Folder:
    """What a folder with a model holds, read and checked."""

    path: Path
    config: Any  # `RunConfig` of a model that Sightline has trained; of a published one the axes of its network
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


def read_folder(
    path: str | Path,
    device: str = "cpu",
    dtype: str = "file",
    tasks: Sequence[str] | None = None,
    published: bool = True,
) -> Folder:
    """The model in `path`, which may be a name of the hub.

    Args:
        device: "cpu" or "cuda".
        dtype: numbers that a published model is to compute with, as `sightline.load` takes them; "file": those of the
            file, of several the widest.
        tasks: for one of these it must have been trained where Sightline has; None: anything will do.
        published: whether a published model will do as well.

    Raises:
        UserError: something is missing, not understood, does not fit or is not what the manifest lists, or it is a
            model for something else.
    """
    folder = folder_of(path)
    if published and is_family(folder):
        from sightline.checkpoint.imported import read_published

        return read_published(folder, device, dtype)
    digests = Digests(folder)
    packed = any(folder.glob(PACKED.format("*")))  # then the weights may not be read: they are checked when they are
    names = [name for name in digests.names if name != WEIGHTS or not packed]
    digests.begin(names)
    config, about = settings_for(tasks, folder)
    trained = Trained(config.model, read_weights(folder), device, digests)
    tokenizer = None if config.model.task == "forecast" else read_tokenizer(folder, config)
    digests.check(names)
    return Folder(folder, config, about, device, trained, lambda: tokenizer)
