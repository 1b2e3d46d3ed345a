"""A model folder that was read, whatever its layout.

The layouts are in `trained` (models trained here) and `imported` (Hugging Face and `headwise import`). For models
trained here, only `network` needs torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Folder:
    """The content of a model folder, read and checked."""

    path: Path
    config: Any  # `RunConfig` of a model trained here; `NetworkConfig` of a pretrained one
    about: dict[str, Any]  # the rest of config.json: versions, recipe, corpus; all of it for a pretrained model
    device: str
    weights: Any  # `.network` is the torch module in evaluation mode; of our own it is a `Trained`
    read_tokenizer: Callable[[], Any]

    @property
    def network(self) -> Any:
        """The torch module."""
        return self.weights.network

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; None for models without text, `UserError` if a pretrained model lacks it."""
        return self.read_tokenizer()
