"""The parameters of a pretrained network, from safetensors files to the compiled library without torch.

For folders in the Hugging Face layout and imported ones. Everything out of the ordinary (adapters, pickled or quantised
tensors, networks that the library does not support) is left to `imported`, which needs torch.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from headwise.config.network import NetworkConfig, network_config
from headwise.families.table import Entry
from headwise.runtime.checkpoint.companions import FORMAT
from headwise.runtime.checkpoint.compiled import library_shape
from headwise.runtime.checkpoint.compiled_encoder import supports_encoder
from headwise.runtime.checkpoint.identify import names_network
from headwise.runtime.checkpoint.layout import CONFIG, adapters_in, weight_files
from headwise.runtime.checkpoint.shapes import fits, parameter_shapes
from headwise.runtime.formats.matching import TensorsOf, checkpoint_config, match_tensors
from headwise.runtime.formats.weights import KINDS, Arrays, WeightsFile

NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
QUANTISED = ("quantization_config", "compression_config")  # keys of a config.json
AXES = "family"  # key in the config.json of imported folders


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a file that has not been read."""

    file: WeightsFile
    key: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the file."""
        return self.file.every_shape[self.key]

    @property
    def dtype(self) -> str:
        """The name of its numbers in torch, if they are weights; otherwise that in the file."""
        return NAMES.get(self.file.kinds[self.key], self.file.kinds[self.key])

    @property
    def is_weight(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.file.kinds[self.key] in KINDS

    def read(self) -> NDArray[np.float32]:
        """The values."""
        return self.file[self.key]


class EntryArrays(Arrays):
    """Our parameters, each from its tensor of a file; one in use is not read again."""

    def __init__(self, entries: list[tuple[Entry, FileTensor]], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self._entries = {name: (entry, tensor) for entry, tensor in entries for name in entry.names}
        self._in_use: WeakValueDictionary[str, NDArray[np.float32]] = WeakValueDictionary()

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        found = self._in_use.get(name)
        if found is None:
            entry, tensor = self._entries[name]
            found = self._in_use[name] = entry.to_own(tensor.read())[name]
        return found


def published_arrays(folder: Path, values: Mapping[str, Any]) -> tuple[NetworkConfig, Arrays, list[str]] | None:
    """The axes, the parameters and the names of the files of a pretrained network that the library supports, or None.

    `values` is its config.json.

    Raises:
        UserError: the files are damaged or do not fit together.
    """
    if adapters_in(folder) or any(values.get(key) for key in QUANTISED) or values.get("model_type") == "xlnet":
        return None
    if AXES in values and values.get("format") != FORMAT:
        return None
    if AXES in values:
        family, config = None, network_config(values[AXES], str(folder / CONFIG))
    elif not names_network(values):
        return None
    else:
        family, config = checkpoint_config(values, folder)
    if not _supported(config):
        return None
    files = weight_files(folder)
    if not all(path.suffix == ".safetensors" for path in files):
        return None
    tensors = dict(_tensors(files))
    if not all(one.is_weight or (family and re.search(family.ignored, key)) for key, one in tensors.items()):
        return None
    names = [path.relative_to(folder).as_posix() for path in files]
    if family is None:
        entries = [(Entry(name, [name], "", 1), tensor) for name, tensor in tensors.items()]
        arrays = EntryArrays(entries, {name: tensor.shape for name, tensor in tensors.items()})
        return (config, arrays, names) if fits(config, arrays.shapes) else None
    found = TensorsOf(tensors, lambda tensor: tensor.dtype, _equal)
    fitting = match_tensors(family, config, found, parameter_shapes, str(folder))
    if not _supported(fitting.config):  # its file lacks the head
        return None
    for note in fitting.notes:
        warnings.warn(note, stacklevel=2)
    return fitting.config, EntryArrays(fitting.entries, parameter_shapes(fitting.config)), names


def _supported(config: NetworkConfig) -> bool:
    return bool(library_shape(config)) or supports_encoder(config)


def _tensors(files: list[Path]) -> Iterator[tuple[str, FileTensor]]:
    for path in files:
        file = WeightsFile(path, only_weights=False)
        yield from ((key, FileTensor(file, key)) for key in file.every_shape)


def _equal(one: FileTensor, other: FileTensor) -> bool:
    return one.shape == other.shape and np.array_equal(one.read(), other.read())
