"""XLNet in the Hugging Face layout, read and written.

See `pytorch.checkpoint.xlnet_names` for names and shapes and `published` for reading tensors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.errors import UserError
from headwise.pytorch.checkpoint.adapters import open_tensors
from headwise.pytorch.checkpoint.precision import refuse_quantised, refuse_quantised_config, widest
from headwise.pytorch.checkpoint.published import ReadCheckpoint
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.checkpoint.xlnet_names import shape_from_hf, xlnet_file_tensors, xlnet_from_hf
from headwise.runtime.checkpoint.layout import WEIGHTS


def read_xlnet(folder: Path, values: dict[str, Any], dtype: torch.dtype | None = None) -> ReadCheckpoint:
    """The model in `folder`, with the config.json `values`, in `dtype` (None = that of the file); `UserError` lists
    everything that does not fit.
    """
    refuse_quantised_config(folder, values)
    try:
        shape = shape_from_hf(values)
    except UserError as error:
        raise UserError(f"{folder}/{error}") from None
    tensors = open_tensors(folder)
    refuse_quantised(folder, tensors)
    network = xlnet_from_hf(values, tensors, str(folder / WEIGHTS)).to(dtype or widest(tensors.values()))
    return ReadCheckpoint(network, shape, values)


class XLNetLayout(SameLayout):
    """The layout of the folder of an XLNet, for other weights."""

    def in_file(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return xlnet_file_tensors(parameters, self.model.config.n_layers, self.model.config.n_heads)
