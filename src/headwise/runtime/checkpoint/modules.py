"""The modules in `modules.json` of a folder of sentence-transformers.

The first is the network of the folder; those after it turn its states into one vector. See
`headwise.models.encoding.sentences` for their computations.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.runtime.checkpoint.layout import CONFIG

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
LIBRARY = "sentence_transformers."
# File names of the settings of the first module; they depend on the network for which the folder was made.
READING = tuple(
    f"sentence_{network}_config.json"
    for network in ("bert", "roberta", "distilbert", "camembert", "albert", "mpnet", "xlm-roberta", "xlnet")
)


@dataclass(frozen=True)
class Module:
    """An entry of `modules.json`."""

    kind: str  # "Transformer", "Pooling", "Dense", ...; the full dotted name if it is not from the library
    folder: Path


def network_folder(folder: Path) -> Path:
    """The folder of the network: `folder` itself, or that of its first module (sentence-transformers before 0.4)."""
    if (folder / CONFIG).exists() or not (folder / MODULES).is_file():
        return folder
    first = read_modules(folder)[0]
    return first.folder if first.kind == "Transformer" and (first.folder / CONFIG).is_file() else folder


def modules_of_network(folder: Path) -> list[Module]:
    """The modules of a network, in order: those of its folder, or of the folder around it that lists it first."""
    own = read_modules(folder)
    around = [] if own else read_modules(folder.absolute().parent)
    return around if around and around[0].folder == folder.absolute() else own


def read_modules(folder: Path) -> list[Module]:
    """The modules that a folder lists, in order; none without the file."""
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(listed, list) or not listed:
        raise UserError(f"{path}: must be a list of modules")
    return [_module(folder, values) for values in listed]


def _module(folder: Path, values: Any) -> Module:
    kind, path = (values.get("type"), values.get("path", "")) if isinstance(values, dict) else (None, "")
    if not isinstance(kind, str) or not isinstance(path, str):
        raise UserError(f"{folder / MODULES}: each module must be an object with a type and a path")
    if not (folder / path).resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder / MODULES}: {path} lies outside of the folder")
    return Module(kind.rpartition(".")[2] if kind.startswith(LIBRARY) else kind, folder / path)


def module_files(folder: Path) -> Iterator[Path]:
    """The files of all modules, relative to `folder`; `UserError` if the folder around it lists them."""
    modules = read_modules(folder)
    if not modules and modules_of_network(folder):
        raise UserError(
            f"{folder.parent / MODULES}: its network has a folder of its own, as in sentence-transformers before 0.4, "
            "so that pooling would be lost; save it with a current version first"
        )
    named = [folder / name for name in (MODULES, PROMPTS, *READING)] if modules else []
    inside = [path for module in modules if module.folder != folder for path in sorted(module.folder.rglob("*"))]
    return (path.relative_to(folder) for path in (*named, *inside) if path.is_file())
