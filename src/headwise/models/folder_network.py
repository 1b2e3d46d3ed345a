"""What the networks of `models.translator.LoadedNetwork` that come in one folder have in common."""

from typing import Any

from headwise.checkpoint.folder import Folder
from headwise.checkpoint.stored_network import StoredNetwork
from headwise.contract import SearchEngine


class FolderNetwork:
    """The network of a folder, in the compiled library or as a torch module."""

    def __init__(self, folder: Folder) -> None:
        self.path, self.config, self.device_name = folder.path, folder.config, folder.device
        self.stored: StoredNetwork = folder.weights

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
        """What searches with it in this precision."""
        return self.stored.engine(compute)
