"""`load`: the model in a folder, as the class for its kind of network.

The table of kinds is in `models.kinds`. The compiled library translates without torch (`checkpoint.compiled`).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.checkpoint.folder import Folder
from headwise.checkpoint.read import read_folder
from headwise.config.settings import RunConfig
from headwise.device import device_name
from headwise.errors import UserError
from headwise.families.registry import missing_head
from headwise.models.ensemble import ensemble_of
from headwise.models.kinds import KINDS, TRAINED, AnyModel, kind_of
from headwise.models.trained import TrainedNetwork
from headwise.models.translator import Translator
from headwise.models.workers import Loading


def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    dtype: str = "auto",
    ignore_keys: Collection[str] = (),
) -> AnyModel:
    """The model in a directory that `train` wrote, or in a folder in the Hugging Face layout; or several as one.

    Args:
        path: the folder; or OWNER/NAME of the Hugging Face hub, if it is in its cache, and hf:OWNER/NAME to fetch it.
            A list of model directories of one tokenizer is an ensemble.
        device: "auto", "cpu" or "cuda".
        dtype: numbers to compute with: "float32", "float16" or "bfloat16". "auto" is float32 on a CPU, elsewhere what
            the file has; a float32 file then decodes as `SearchSettings.compute` = "auto" has it, in float16 or
            bfloat16 on CUDA. Weights that are in the file as they are asked for are mapped into memory, pages that
            processes share and the system may drop; others are converted, a copy of 4 bytes (half precision: 2) a
            parameter beside the file. Networks that Headwise has trained stay float32: these numbers are what they
            decode with, as `translate(..., compute=...)` has it for one call.
        ignore_keys: unknown keys of a config.json in the Hugging Face layout to ignore, which are errors otherwise.
            Results may then differ from those of other software.

    Returns:
        A `Model`. Its methods depend on what its network reads and writes; any other one is a `UserError` that lists
        those it has.

    Raises:
        UserError: there is no such model, or something in it is missing, not understood or does not fit.
    """
    if not isinstance(path, str | Path):
        if ignore_keys:
            raise UserError("ignore_keys is for one model; import the models with it first")
        return load_translators(path, device, dtype)
    return _model_of(_read(path, device, dtype, ignore_keys=ignore_keys), dtype)


def _loading(paths: Sequence[str | Path], device: str, dtype: str) -> Loading:
    return Loading(tuple(map(str, paths)), device, dtype, load)


def _read(
    path: str | Path,
    device: str,
    dtype: str = "file",
    tasks: Sequence[str] | None = None,
    published: bool = True,
    ignore_keys: Collection[str] = (),
) -> Folder:
    return read_folder(path, device_name(device), dtype, tasks, published, ignore_keys)


def _model_of(folder: Folder, dtype: str) -> AnyModel:
    loading = _loading([folder.path], folder.device, dtype)
    if not isinstance(folder.config, RunConfig):
        return pretrained_model(folder, loading)
    folder = _decoding_in(dtype, folder)
    if folder.config.model.task == "translate":
        return _translator(TrainedNetwork(folder), loading)
    return TRAINED[folder.config.model.task](folder)


def pretrained_model(folder: Folder, loading: Loading | None = None) -> AnyModel:
    """The model of a folder in the Hugging Face layout, or one that `headwise import` wrote."""
    kind = kind_of(folder.config)
    if kind == "translator":
        return _translator(KINDS[kind](folder), loading or _loading([folder.path], folder.device, "auto"))
    model = KINDS[kind](folder)
    model.missing_head = missing_head(folder.about, getattr(folder.config, "head", ""))
    return model


def _translator(network: Any, loading: Loading) -> Any:
    return Translator(network, loading)


def _decoding_in(dtype: str, folder: Folder) -> Folder:
    """A model trained here, whose network is float32: `dtype` are the numbers that it decodes with."""
    config = folder.config
    if dtype == "auto":
        return folder
    if config.model.task != "translate":
        if dtype == "float32":
            return folder
        raise UserError(f"{folder.path}: dtype = {dtype} is for translation models and pretrained ones")
    return replace(folder, config=replace(config, decode=replace(config.decode, compute=dtype)))


def translation_folder(path: str | Path) -> Folder:
    """The folder of a translation model on a CPU; `UserError` for any other."""
    return _read(path, "cpu", "auto", ("translate",))


def load_translator(path: str | Path, device: str = "auto", dtype: str = "auto") -> AnyModel:
    """`load` for what reads a text and writes another; `UserError`, with what it can do, for any other model."""
    model = _model_of(_read(path, device, dtype, ("translate",)), dtype)
    _ = model.translate
    return model


def load_task(task: str, path: str | Path, device: str = "auto", published: bool = False) -> AnyModel:
    """`load` for a model that `train` wrote for `task`, or a `published` one; `UserError` where it is another."""
    return _model_of(_read(path, device, "auto", (task,), published), "auto")


def load_translators(paths: Sequence[str | Path], device: str = "auto", dtype: str = "auto") -> AnyModel:
    """One model that translates, or several as an ensemble; a `UserError` names what does not go with them."""
    if not paths:
        raise UserError("load takes a model directory, or a list of them; this list is empty")
    models: list[Any] = [load_translator(path, device, dtype) for path in paths]
    if len(models) == 1:
        return models[0]
    loading = _loading(paths, device_name(device), dtype)
    ensemble: Any = ensemble_of(models, loading)
    return ensemble
