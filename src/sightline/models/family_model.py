"""A published model before it has any verbs: what came in its folder.

Not here: how a folder is read (`checkpoint.folder`), and what models are good for (`models`).
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sightline.checkpoint.vocabulary import Vocabulary, read_vocabulary
from sightline.generation.settings import GenerationSettings, read_settings
from sightline.models.model import Model
from sightline.network.axes import NetworkConfig


@dataclass(frozen=True)
class FamilyModel(Model):
    """A network of one of the families, with what came with it."""

    network: Any = field()  # the torch module
    config: NetworkConfig = field()
    hf_config: dict[str, Any] = field()  # config.json of the checkpoint
    path: Path = field()
    device: torch.device = field()

    @cached_property
    def tokenizer(self) -> Vocabulary:
        """Between text and ids; `UserError` where the folder has no vocabulary."""
        return read_vocabulary(self.path, self.hf_config)


class Writer(FamilyModel):
    """What all models that write have in common."""

    @cached_property
    def generation(self) -> GenerationSettings:
        """How it writes unless a call says otherwise; `unused` names what its file asks for and is not to be had."""
        return read_settings(self.path, self.hf_config, has_encoder=self.config.encoder is not None)
