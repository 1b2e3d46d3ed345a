"""Write the folder of trained adapters in the layout of `peft`, with the files of tokenizer and generation.

The table of the family tells which linear layers can have adapters, and their names in the file of the model.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.errors import UserError, unknown
from headwise.families.registry import FAMILIES
from headwise.families.table import Entry, entries
from headwise.pytorch.checkpoint.adapter_parts import PREFIX
from headwise.pytorch.checkpoint.tensors import file_tensor
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.runtime.checkpoint.adapter_folders import MATRICES
from headwise.runtime.checkpoint.layout import ADAPTER
from headwise.runtime.checkpoint.manifest import seal
from headwise.runtime.checkpoint.trained import CARD, write_file, write_json, write_text

TASK_TYPES = {  # names of tasks in peft
    "translate": "SEQ_2_SEQ_LM",
    "lm": "CAUSAL_LM",
    "classify": "SEQ_CLS",
    "tag": "TOKEN_CLS",
    "answer": "QUESTION_ANS",
    "embed": "FEATURE_EXTRACTION",
}


@dataclass(frozen=True)
class AdapterLayout:
    """Adapters on `layers` of the model in `inner`, whose folder is `base`, and fully trained parts of its head."""

    inner: SameLayout
    base: Path
    train: TrainConfig
    layers: Sequence[Entry]
    heads: Sequence[Entry] = ()

    def write_settings(self, folder: Path, config: RunConfig, tokenizer: Any, about: Mapping[str, Any]) -> None:
        """Write all files but the matrices and the card."""
        self.inner.write_settings(folder, config, tokenizer, about)
        write_json(folder / ADAPTER, self._described(config.model.task))

    def _described(self, task: str) -> dict[str, Any]:
        alpha = self.train.lora_alpha
        return {
            "peft_type": "LORA",
            "task_type": TASK_TYPES.get(task),
            "base_model_name_or_path": str(self.base.absolute()),
            "r": self.train.lora_rank,
            "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
            "lora_dropout": self.train.lora_dropout,
            "target_modules": [self._layer(entry) for entry in self.layers],
            "modules_to_save": sorted({self._part(entry) for entry in self.heads}) or None,
            "fan_in_fan_out": any("^" in entry.marks for entry in self.layers),
            "bias": "none",
            "inference_mode": True,
        }

    def _part(self, entry: Entry) -> str:
        """The part of the network that peft saves in full: the first word after the prefix of the body."""
        return entry.key.removeprefix(self._prefix).partition(".")[0]

    def _layer(self, entry: Entry) -> str:
        """The name of a layer in `transformers`, where only networks with a head have the prefix of the body."""
        key = entry.key.removesuffix(".weight")
        return key if self.inner.model.config.head != "none" else key.removeprefix(self._prefix)

    @property
    def _prefix(self) -> str:
        return FAMILIES[self.inner.model.config.family].prefix

    def write_weights(self, folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
        """The matrices by their names in peft, and the model card."""
        tensors = {name: value.detach().float().cpu().contiguous() for name, value in self._tensors(parameters).items()}
        write_file(folder / MATRICES, lambda path: save_file(tensors, path, {"format": "pt"}))
        write_text(folder / CARD, card)
        seal(folder)

    def _tensors(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = {f"{PREFIX}{entry.key}": file_tensor(entry, parameters) for entry in self.heads}
        for entry in self.layers:
            names = [name.removesuffix(".weight") for name in entry.names]
            a = next(parameters[name] for name in (f"{part}.lora_A" for part in names) if name in parameters)
            rows = Entry(entry.key, [f"{part}.lora_B" for part in names], entry.marks.strip("^+"), entry.n_heads)
            found[f"{PREFIX}{self._layer(entry)}.lora_A.weight"] = a
            found[f"{PREFIX}{self._layer(entry)}.lora_B.weight"] = file_tensor(rows, parameters)
        return found


def adaptable(network: nn.Module, model: Any, names: Collection[str]) -> list[Entry]:
    """The linear layers of a file that match `names`: ends of dotted names, here or in the file.

    One matrix of a file (queries, keys and values of GPT-2) is one layer. `UserError` for a name without a match.
    """
    there = [entry for entry in _entries(network, model) if _is_layer(network, entry)]
    for name in names:
        if not any(_means(name, entry) for entry in there):
            known = sorted({path.rpartition(".")[2] for entry in there for path in _paths(entry)})
            raise UserError(f"train.lora_layers: {unknown('layer', name, known)}")
    return [entry for entry in there if any(_means(name, entry) for name in names)]


def head_entries(network: nn.Module, model: Any) -> list[Entry]:
    """The entries of a file for the head of a network."""
    return [entry for entry in _entries(network, model) if entry.names[0].startswith("head.")]


def _entries(network: nn.Module, model: Any) -> list[Entry]:
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    return entries(FAMILIES[model.config.family].table(model.config), model.config, shapes)


def _is_layer(network: nn.Module, entry: Entry) -> bool:
    parts = [name.rpartition(".") for name in entry.names]
    stacks = "encoder.layers.", "decoder.layers."
    inside = all(leaf == "weight" and part.startswith(stacks) for part, _, leaf in parts)
    return inside and all(isinstance(network.get_submodule(part), nn.Linear) for part, _, _ in parts)


def _paths(entry: Entry) -> list[str]:
    return [name.removesuffix(".weight") for name in (entry.key, *entry.names)]


def _means(name: str, entry: Entry) -> bool:
    return any(f".{path}".endswith(f".{name}") for path in _paths(entry))
