"""Temporary folders in the Hugging Face layout, for models of other programs whose network is one of a family."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import WEIGHTS


@contextmanager
def converted_folder(
    origin: Path, files: Mapping[str, Mapping[str, Any]], tensors: Iterable[tuple[str, NDArray[np.float32]]]
) -> Iterator[Path]:
    """A folder with these JSON files and tensors, while the context is open; its errors name `origin` instead."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, values in files.items():
            (folder / file).write_text(json.dumps(values), encoding="utf-8")
        save_file(dict(tensors), folder / WEIGHTS, {"format": "pt"})
        try:
            yield folder
        except UserError as error:
            raise UserError(str(error).replace(name, str(origin))) from error
