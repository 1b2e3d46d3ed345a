"""A model folder that was read, whatever its layout.

The layouts are in `trained` (models trained here) and `imported` (Hugging Face and `headwise import`). For models
trained here, only `network` needs torch. A `FolderNetwork` is what the networks of
`models.translation.translator.LoadedNetwork` that come in one folder have in common.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.contract import SearchEngine
from headwise.runtime.checkpoint.stored_network import StoredNetwork


@dataclass(frozen=True)
class Folder:
    """The content of a model folder, read and checked."""

    path: Path
    config: Any  # `RunConfig` of a model trained here; `NetworkConfig` of a pretrained one
    about: dict[str, Any]  # the rest of config.json: versions, recipe, corpus; all of it for a pretrained model
    device: str
    stored: Any  # a `StoredNetwork`, or the content of a checkpoint: `.network` is the torch module, in evaluation mode
    read_tokenizer: Callable[[], Any]

    @property
    def network(self) -> Any:
        """The torch module."""
        return self.stored.network

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; None for models without text, `UserError` if a pretrained model lacks it."""
        return self.read_tokenizer()


class FolderNetwork:
    """The network of a folder, in the compiled library or as a torch module."""

    def __init__(self, folder: Folder) -> None:
        self.path, self.config, self.device_name = folder.path, folder.config, folder.device
        self.stored: StoredNetwork = folder.stored

    def torch_module(self) -> Any:
        """The torch module; made when it is first used."""
        return self.stored.network

    @property
    def dtype(self) -> str:
        """The precision of the parameters."""
        return self.stored.dtype

    @property
    def automatic(self) -> str:
        """The precision of decoding for "auto"."""
        return self.stored.automatic

    @property
    def changed(self) -> bool:
        """Whether the network computes anything else than its files."""
        return self.stored.changed

    @property
    def in_library(self) -> bool:
        """Whether the compiled library supports it."""
        return self.stored.in_library

    def engine(self, compute: str) -> SearchEngine:
        """The search engine for this precision."""
        return self.stored.engine(compute)
