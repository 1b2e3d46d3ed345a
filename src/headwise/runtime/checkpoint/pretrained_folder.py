"""Read a pretrained model: without torch, if the compiled library supports its network; otherwise with torch."""

from collections.abc import Collection
from pathlib import Path

from headwise.errors import UserError
from headwise.importing import torch_needed
from headwise.runtime.checkpoint.adapter_folders import home_of
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.layout import CONFIG, read_json
from headwise.runtime.checkpoint.manifest import Digests, files_to_check
from headwise.runtime.checkpoint.stored_network import Built, LibraryParameters, StoredNetwork
from headwise.runtime.formats.published_arrays import published_arrays
from headwise.runtime.native.library import library
from headwise.runtime.tokenizers.vocabulary import read_vocabulary


def read_pretrained_folder(
    folder: Path, device: str, dtype: str, ignore_keys: Collection[str] = (), unsupported: str = ""
) -> Folder:
    """The model in a folder in the Hugging Face layout, or in an imported one; arguments as for `read.read_folder`."""
    by_library = device == "cpu" and dtype in ("auto", "float32") and not ignore_keys
    if found := _for_library(folder) if by_library else None:
        return found
    if unsupported:
        raise UserError(unsupported)
    with torch_needed():
        from headwise.pytorch.checkpoint.with_torch import read_published
    return read_published(folder, device, dtype, ignore_keys)


def _for_library(folder: Path) -> Folder | None:
    """A pretrained model that the compiled library supports; None for any other."""
    if library() is None:
        return None
    values = read_json(home_of(folder) / CONFIG)
    found = published_arrays(folder, values)
    if found is None:
        return None
    axes, arrays, files = found
    digests = Digests(folder)
    names = files_to_check(digests, files)
    digests.begin(names)

    def build() -> Built:
        with torch_needed():
            from headwise.pytorch.checkpoint.with_torch import build_published
        return build_published(folder, "cpu", "float32")

    network = StoredNetwork(build, LibraryParameters(axes, arrays, folder, digests, files))
    about = values.get("hf", {}) if "family" in values else values
    digests.check(names)
    return Folder(folder, axes, about, "cpu", network, lambda: read_vocabulary(folder, about))
