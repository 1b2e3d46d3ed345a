"""One reader of model folders, whichever layout they are in."""

from collections.abc import Callable, Sequence
from pathlib import Path

from headwise.checkpoint.compiled import axes_for_library, fits
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.hub import folder_of
from headwise.checkpoint.layout import PACKED, WEIGHTS, is_family
from headwise.checkpoint.manifest import Digests
from headwise.checkpoint.other_formats import other_format
from headwise.checkpoint.stored_network import LibraryParameters, StoredNetwork, TorchSide
from headwise.checkpoint.trained import read_tokenizer, read_weights, settings_for
from headwise.errors import UserError


def read_folder(
    path: str | Path,
    device: str,
    dtype: str,
    tasks: Sequence[str] | None,
    read_pretrained: Callable[..., Folder] | None,
    torch_side: Callable[[], TorchSide],
) -> Folder:
    """The model in `path`, which may be a name of the hub.

    Args:
        device: "cpu" or "cuda".
        dtype: precision of a pretrained model, as `headwise.load` takes it; "file": that of the file, the widest of
            several.
        tasks: the model must have been trained here for one of these; None: anything will do.
        read_pretrained: `pretrained_folder.read_pretrained_folder`, for pretrained models; None: they will not do.
        torch_side: gives what needs torch, when it is needed.

    Raises:
        UserError: something is missing, not understood, does not fit or is not what the manifest lists, or it is a
            model for something else.
    """
    folder = folder_of(path)
    if found := other_format(folder):
        raise UserError(f"{path}: {found}")
    if read_pretrained and is_family(folder):
        return read_pretrained(folder, device, dtype, torch_side)
    digests = Digests(folder)
    names = files_to_check(digests, [WEIGHTS])
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


def files_to_check(digests: Digests, weights: Sequence[str]) -> list[str]:
    """The listed files to check when a model is loaded. Weights beside packed files are checked when they are read."""
    packed = any(digests.folder.glob(PACKED.format("*")))
    return [name for name in digests.names if not (packed and name in weights)]
