"""One reader for model folders of every layout."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from headwise.errors import UserError
from headwise.importing import Table, torch_needed
from headwise.runtime.checkpoint.compiled import axes_for_library
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.hub import folder_of
from headwise.runtime.checkpoint.layout import WEIGHTS, is_family
from headwise.runtime.checkpoint.manifest import Digests, files_to_check
from headwise.runtime.checkpoint.shapes import fits
from headwise.runtime.checkpoint.stored_network import Built, LibraryParameters, StoredNetwork
from headwise.runtime.checkpoint.trained import read_tokenizer, read_weights, settings_for
from headwise.runtime.formats.other_formats import other_format

LAYOUTS: Table[Callable[..., Folder]] = Table(  # of other programs; our own is read here
    {"Hugging Face": "headwise.runtime.checkpoint.pretrained_folder:read_pretrained_folder"}
)


def read_folder(
    path: str | Path,
    device: str = "cpu",
    dtype: str = "file",
    tasks: Sequence[str] | None = None,
    published: bool = True,
    ignore_keys: Collection[str] = (),
    unsupported: str = "",
) -> Folder:
    """The model in `path`, which may be a name of the hub.

    Args:
        device: "cpu" or "cuda".
        dtype: precision of a pretrained model, as `headwise.load` takes it; "file": that of the file, the widest of
            several.
        tasks: the model must have been trained here for one of these; None: anything will do.
        published: whether a pretrained model will do.
        ignore_keys: unknown keys of a pretrained model's config.json to ignore.
        unsupported: the error if the compiled library does not support the network; "" = torch computes with it.

    Raises:
        UserError: something is missing, not understood, does not fit or is not what the manifest lists, or it is a
            model for something else.
    """
    folder = folder_of(path)
    if found := other_format(folder):
        raise UserError(f"{path}: {found}")
    if published and is_family(folder):
        return LAYOUTS["Hugging Face"](folder, device, dtype, ignore_keys, unsupported)
    digests = Digests(folder)
    names = files_to_check(digests, [WEIGHTS])
    digests.begin(names)
    config, about = settings_for(tasks, folder)
    weights = read_weights(folder)
    axes = axes_for_library(config.model) if device == "cpu" else None
    parameters = None
    if axes and fits(axes, weights.shapes):
        parameters = LibraryParameters(axes, weights, folder, digests, [WEIGHTS])
    elif unsupported:
        raise UserError(unsupported)
    else:
        digests.check([WEIGHTS])

    def build() -> Built:
        with torch_needed():
            from headwise.pytorch.checkpoint.with_torch import build_trained
        return build_trained(config.model, weights, device)

    network = StoredNetwork(build, parameters)
    tokenizer = None if config.model.task == "forecast" else read_tokenizer(folder, config)
    digests.check(names)
    return Folder(folder, config, about, device, network, lambda: tokenizer)
