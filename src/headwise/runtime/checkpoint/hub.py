"""What a MODEL means: a folder, the name of a downloaded model, or one on the Hugging Face Hub.

A folder comes first. Models of the hub are in its cache, or downloaded on request (`hf:OWNER/NAME`).
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from headwise.errors import UserError
from headwise.runtime.checkpoint.modules import network_folder
from headwise.runtime.checkpoint.releases import can_be_downloaded, downloaded, how_to_get

FETCH = "hf:"
# Weights once, if possible as safetensors: repositories often contain them for other frameworks, too.
WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
PICKLED = "pytorch_model*.bin"
NAME = re.compile(r"[\w.-]+/[\w.-]+")  # of a model on the hub: OWNER/NAME


def folder_of(path: str | Path) -> Path:
    """The folder of the network in `path`: itself, or in it, in a downloaded model or in the cached one of OWNER/NAME.

    Only hf:OWNER/NAME uses the network; a mistyped path must not.

    Raises:
        UserError: hf:OWNER/NAME cannot be downloaded; OWNER/NAME is not cached, and there is no folder OWNER; or the
            name is of a model that `headwise download` can fetch.
    """
    folder = known_folder(path)
    if str(folder) != str(path) or folder.exists():
        return network_folder(folder)
    if can_be_downloaded(str(path)):
        raise UserError(f"{path}: no such model directory; {how_to_get(str(path))}")
    if NAME.fullmatch(str(path)) and not folder.parent.is_dir():
        raise UserError(
            f"{path}: no such model directory; give the folder that `headwise train --out` wrote, or write "
            f"{FETCH}{path} to download the model of that name from the Hugging Face Hub"
        )
    return network_folder(folder)


def known_folder(path: str | Path) -> Path:
    """`folder_of`, but the path itself if nothing is found."""
    name = str(path)
    if name.startswith(FETCH):
        return _fetched(name.removeprefix(FETCH))
    if Path(path).exists():
        return Path(path)
    return (_cached(name) if NAME.fullmatch(name) else downloaded(name)) or Path(path)


def _cached(name: str) -> Path | None:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):
        return None


def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import model_info, snapshot_download
    except ImportError:
        raise UserError(f'{FETCH}{name} needs a library: pip install "headwise[hub]"') from None
    try:
        listed = model_info(name).siblings or []  # without a network this fails at once; the others try six times
        wanted = WANTED + _only_pickled([one.rfilename for one in listed])
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # of many kinds: no such name, no right to it, no network
        cached = _cached(name)
        if cached is None:
            raise UserError(
                f"{FETCH}{name}: cannot be fetched ({type(error).__name__}) and is in no cache; check name and network"
            ) from None
        return cached


def _only_pickled(files: Sequence[str]) -> list[str]:
    """Pickled weights of folders without safetensors; modules of sentence-transformers have folders of their own."""
    paths = [PurePosixPath(file) for file in files]
    safe = {path.parent for path in paths if path.suffix == ".safetensors"}
    return [str(path) for path in paths if fnmatch(path.name, PICKLED) and path.parent not in safe]
