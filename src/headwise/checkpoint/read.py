"""One reader of model folders, whichever layout they are in."""

from collections.abc import Callable, Sequence
from pathlib import Path

from headwise.checkpoint.adapter_folders import home_of
from headwise.checkpoint.compiled import axes_for_library, fits
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.hub import folder_of
from headwise.checkpoint.layout import CONFIG, PACKED, WEIGHTS, is_family, read_json
from headwise.checkpoint.manifest import Digests
from headwise.checkpoint.published_arrays import published_arrays
from headwise.checkpoint.stored_network import LibraryParameters, StoredNetwork, TorchSide
from headwise.checkpoint.trained import read_tokenizer, read_weights, settings_for
from headwise.checkpoint.vocabulary import read_vocabulary
from headwise.native.library import library


def read_folder(
    path: str | Path,
    device: str,
    dtype: str,
    tasks: Sequence[str] | None,
    published: bool,
    torch_side: Callable[[], TorchSide],
) -> Folder:
    """The model in `path`, which may be a name of the hub.

    Args:
        device: "cpu" or "cuda".
        dtype: precision of a pretrained model, as `headwise.load` takes it; "file": that of the file, the widest of
            several.
        tasks: the model must have been trained here for one of these; None: anything will do.
        published: whether a pretrained model will do as well.
        torch_side: gives what needs torch, when it is needed.

    Raises:
        UserError: something is missing, not understood, does not fit or is not what the manifest lists, or it is a
            model for something else.
    """
    folder = folder_of(path)
    if published and is_family(folder):
        found = _published(folder, torch_side) if device == "cpu" and dtype in ("auto", "float32") else None
        return found or torch_side().read_published(folder, device, dtype)
    digests = Digests(folder)
    names = _checked_now(digests, [WEIGHTS])
    digests.begin(names)
    config, about = settings_for(tasks, folder)
    weights = read_weights(folder)
    axes = axes_for_library(config.model) if device == "cpu" else None
    parameters = None
    if axes and fits(axes, weights.shapes):
        parameters = LibraryParameters(axes, weights, folder, digests, [WEIGHTS])
    else:
        digests.check([WEIGHTS])
    network = StoredNetwork(torch_side, lambda side: side.build_trained(config.model, weights, device), parameters)
    tokenizer = None if config.model.task == "forecast" else read_tokenizer(folder, config)
    digests.check(names)
    return Folder(folder, config, about, device, network, lambda: tokenizer)


def _published(folder: Path, torch_side: Callable[[], TorchSide]) -> Folder | None:
    """A pretrained model that the compiled library supports; None for any other."""
    if library() is None:
        return None
    values = read_json(home_of(folder) / CONFIG)
    found = published_arrays(folder, values)
    if found is None:
        return None
    axes, arrays, files = found
    digests = Digests(folder)
    names = _checked_now(digests, files)
    digests.begin(names)
    network = StoredNetwork(
        torch_side,
        lambda side: side.build_published(folder, "cpu", "float32"),
        LibraryParameters(axes, arrays, folder, digests, files),
    )
    about = values.get("hf", {}) if "family" in values else values
    digests.check(names)
    return Folder(folder, axes, about, "cpu", network, lambda: read_vocabulary(folder, about))


def _checked_now(digests: Digests, weights: Sequence[str]) -> list[str]:
    """The listed files to check when a model is loaded. Weights beside packed files are checked when they are read."""
    packed = any(digests.folder.glob(PACKED.format("*")))
    return [name for name in digests.names if not (packed and name in weights)]
