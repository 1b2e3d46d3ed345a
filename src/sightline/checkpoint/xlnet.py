"""XLNet from a folder in the Hugging Face layout, as `sightline.load` gives it. It stays in that layout.

Not here: names and shapes (`xlnet_checkpoint`) and how tensors and vocabularies are read (`families`).
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sightline.checkpoint.layout import CONFIG, WEIGHTS, read_json
from sightline.checkpoint.precision import refuse_quantised, refuse_quantised_config, widest
from sightline.checkpoint.published import open_tensors
from sightline.checkpoint.vocabulary import Vocabulary, read_vocabulary
from sightline.errors import UserError
from sightline.model import Model
from sightline.relatives.xlnet import XLNet, XLNetShape
from sightline.relatives.xlnet_checkpoint import shape_from_hf, xlnet_from_hf


@dataclass(frozen=True)
class XLNetModel(Model):
    """An XLNet with what came with it."""

    network: XLNet  # the torch module: network(tokens, mask) -> logits (batch, length, vocab)
    shape: XLNetShape
    hf_config: dict[str, Any]  # config.json of the checkpoint
    path: Path
    device: torch.device

    @cached_property
    def tokenizer(self) -> Vocabulary:
        """Between text and ids; `UserError` where the folder has no vocabulary."""
        return read_vocabulary(self.path, self.hf_config)

    does = "reads texts and writes them on"

    def __str__(self) -> str:
        return f"{self.path}: this xlnet {self.does}"

    def info(self) -> dict[str, Any]:
        """What the model is."""
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        return {"family": "xlnet", "parameters": parameters, **asdict(self.shape)}


def is_xlnet(path: str | Path) -> bool:
    """Whether the folder `path` says that it holds an XLNet."""
    folder = Path(path)
    return (folder / CONFIG).is_file() and read_json(folder / CONFIG).get("model_type") == "xlnet"


def read_xlnet(path: str | Path, device: torch.device, dtype: torch.dtype | None = None) -> XLNetModel:
    """The model in `path`, to compute with `dtype` (None = the file's numbers); `UserError` names what is missing, not
    understood or does not fit.
    """
    folder = Path(path)
    values = read_json(folder / CONFIG)
    refuse_quantised_config(folder, values)
    try:
        shape = shape_from_hf(values)
    except UserError as error:
        raise UserError(f"{folder}/{error}") from None
    tensors = open_tensors(folder)
    refuse_quantised(folder, tensors)
    network = xlnet_from_hf(values, tensors, str(folder / WEIGHTS)).to(device, dtype or widest(tensors.values()))
    return XLNetModel(network, shape, values, folder, device)
