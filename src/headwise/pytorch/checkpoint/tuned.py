"""Write a fine-tuned or pruned pretrained model in the layout of its folder.

`training.json` says how it was trained, like `config.json` of a model trained here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from headwise.config.settings import RunConfig
from headwise.errors import writing
from headwise.pytorch.checkpoint.published import unread_tensors
from headwise.pytorch.checkpoint.write import file_tensors
from headwise.runtime.checkpoint.companions import copy_companions, copy_file
from headwise.runtime.checkpoint.layout import CONFIG, UNREAD, WEIGHTS, read_json
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.trained import CARD, FORMAT, RUN, write_file, write_json, write_text


@dataclass(frozen=True)
class SameLayout:
    """The layout of the folder of a pretrained model, for other weights."""

    model: Any  # perhaps with another head than its folder

    def write_settings(self, folder: Path, config: RunConfig, tokenizer: Any, about: Mapping[str, Any]) -> None:
        """Write all files but the weights and the card."""
        self.write_companions(folder)
        write_json(folder / RUN, {"format": FORMAT, **about, **config.as_dict()})

    def write_companions(self, folder: Path) -> None:
        """The files of the tokenizer and of generation, and the configuration for weights in float32."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            copy_companions(self.model.path, folder)
            if self._is_imported and (self.model.path / UNREAD).is_file():
                copy_file(self.model.path / UNREAD, folder / UNREAD)
        write_json(folder / CONFIG, _in_float32(self._config()))

    @property
    def _is_imported(self) -> bool:
        return "family" in read_json(self.model.path / CONFIG)

    def _config(self) -> dict[str, Any]:
        """The configuration of the model, which may have another head than its folder."""
        there = read_json(self.model.path / CONFIG)
        if "family" not in there:
            return self.model.hf_config
        return {**there, "family": self.model.config.as_dict(), "hf": self.model.hf_config}

    def write_weights(self, folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
        """The weights by their original names, and the model card."""
        self._write_tensors(folder, self._tensors(parameters), card)

    def write_pruned(self, folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
        """`write_weights` with the tensors that the network does not use, such as a pooler."""
        own = self._tensors(parameters)
        self._write_tensors(folder, {**self.unread_in_file(), **own}, card)

    def unread_in_file(self) -> dict[str, Tensor]:
        """Tensors of the same file that the network does not use; imported models have a separate file for them."""
        return {} if self._is_imported else unread_tensors(self.model.path)

    def _tensors(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        own = {name: value.detach().float().cpu().contiguous() for name, value in parameters.items()}
        return own if self._is_imported else self.in_file(own)

    def in_file(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters by the names, and in the shapes, of the family."""
        return file_tensors(parameters, self.model.config)

    def _write_tensors(self, folder: Path, tensors: Mapping[str, Tensor], card: str) -> None:
        write_file(folder / WEIGHTS, lambda path: save_file(dict(tensors), path, {"format": "pt"}))
        write_text(folder / CARD, card)
        seal(folder)


def _in_float32(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json for weights in float32."""
    return {
        key: "float32" if key in ("dtype", "torch_dtype") else _in_float32(value) if key == "hf" else value
        for key, value in values.items()
    }
