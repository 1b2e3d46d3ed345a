"""Read a pretrained model: without torch, if the compiled library supports its network; otherwise with torch.

A module of its own, because it imports every family, which a model trained here does not need.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from headwise.checkpoint.adapter_folders import home_of
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.layout import CONFIG, read_json
from headwise.checkpoint.manifest import Digests
from headwise.checkpoint.published_arrays import published_arrays
from headwise.checkpoint.read import files_to_check
from headwise.checkpoint.stored_network import LibraryParameters, StoredNetwork, TorchSide
from headwise.checkpoint.vocabulary import read_vocabulary
from headwise.native.library import library


def read_pretrained_folder(
    folder: Path, device: str, dtype: str, torch_side: Callable[[], TorchSide], ignore_keys: Collection[str] = ()
) -> Folder:
    """The model in a folder in the Hugging Face layout, or in an imported one.

    Arguments as of `read.read_folder`; `ignore_keys` are unknown keys of its config.json to ignore.
    """
    by_library = device == "cpu" and dtype in ("auto", "float32") and not ignore_keys
    found = _for_library(folder, torch_side) if by_library else None
    return found or torch_side().read_published(folder, device, dtype, ignore_keys)


def _for_library(folder: Path, torch_side: Callable[[], TorchSide]) -> Folder | None:
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
    network = StoredNetwork(
        torch_side,
        lambda side: side.build_published(folder, "cpu", "float32"),
        LibraryParameters(axes, arrays, folder, digests, files),
    )
    about = values.get("hf", {}) if "family" in values else values
    digests.check(names)
    return Folder(folder, axes, about, "cpu", network, lambda: read_vocabulary(folder, about))
