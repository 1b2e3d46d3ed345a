"""One reader of model folders, whichever layout they are in."""

from collections.abc import Callable, Sequence
from pathlib import Path

from headwise.checkpoint.folder import Folder
from headwise.checkpoint.hub import folder_of
from headwise.checkpoint.layout import PACKED, is_family
from headwise.checkpoint.manifest import Digests
from headwise.checkpoint.trained import WEIGHTS, read_tokenizer, read_weights, settings_for
from headwise.checkpoint.trained_network import TorchSide, Trained


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
        dtype: numbers that a published model is to compute with, as `headwise.load` takes them; "file": those of the
            file, of several the widest.
        tasks: for one of these it must have been trained where Headwise has; None: anything will do.
        published: whether a published model will do as well.
        torch_side: gives what needs torch, when it is needed.

    Raises:
        UserError: something is missing, not understood, does not fit or is not what the manifest lists, or it is a
            model for something else.
    """
    folder = folder_of(path)
    if published and is_family(folder):
        return torch_side().read_published(folder, device, dtype)
    digests = Digests(folder)
    packed = any(folder.glob(PACKED.format("*")))  # then the weights may not be read: they are checked when they are
    names = [name for name in digests.names if name != WEIGHTS or not packed]
    digests.begin(names)
    config, about = settings_for(tasks, folder)
    trained = Trained(config.model, read_weights(folder), device, digests, torch_side)
    tokenizer = None if config.model.task == "forecast" else read_tokenizer(folder, config)
    digests.check(names)
    return Folder(folder, config, about, device, trained, lambda: tokenizer)
