"""The folder layout of sentence-transformers: a network, and the modules that turn its states into one vector."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headwise.config.settings import RunConfig
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.runtime.checkpoint.modules import LIBRARY, MODULES, READING
from headwise.runtime.checkpoint.trained import write_json

# For a folder without modules: the mean of all states, normalised to length 1.
MEAN = [
    {"idx": i, "name": str(i), "path": path, "type": f"{LIBRARY}models.{path.partition('_')[2] or 'Transformer'}"}
    for i, path in enumerate(("", "1_Pooling", "2_Normalize"))
]


@dataclass(frozen=True)
class EmbedderLayout(SameLayout):
    """The folder of an encoder with its modules."""

    longest: int  # text that is read, in tokens, special tokens included

    def write_settings(self, folder: Path, config: RunConfig, tokenizer: Any, about: Mapping[str, Any]) -> None:
        """Write all files but the weights and the card."""
        super().write_settings(folder, config, tokenizer, about)
        if (folder / MODULES).is_file():
            return
        pooling = {"word_embedding_dimension": self.model.config.encoder.d_model, "pooling_mode_mean_tokens": True}
        for part in MEAN[1:]:
            (folder / str(part["path"])).mkdir(exist_ok=True)
        write_json(folder / "1_Pooling" / "config.json", pooling)
        write_json(folder / READING[0], {"max_seq_length": self.longest, "do_lower_case": False})
        write_json(folder / MODULES, MEAN)

    def _tensors(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """With the unused pooler of the folder, which `transformers` expects."""
        poolers = {key: value for key, value in self.unread_in_file().items() if "pooler" in key}
        return {**poolers, **super()._tensors(parameters)}
