"""`load`: the model in a folder, as the class for its kind of network.

The table of kinds is in `models.kinds`. The compiled library translates without torch (`runtime.checkpoint.compiled`).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwise.config.settings import RunConfig
from headwise.device import device_name
from headwise.errors import UserError
from headwise.families.registry import missing_head
from headwise.models.kinds import KINDS, TRAINED, AnyModel, kind_of
from headwise.models.trained import TrainedNetwork
from headwise.models.translation.ensemble import ensemble_of
from headwise.models.translation.translator import Translator
from headwise.models.translation.workers import Loading
from headwise.runtime.checkpoint.folder import Folder
from headwise.runtime.checkpoint.read import read_folder


def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    dtype: str = "auto",
    ignore_keys: Collection[str] = (),
) -> AnyModel:
    """Load a model: from a folder that `train` wrote, from one in the Hugging Face layout, or several as an ensemble.

    Args:
        path: a model folder; the name of a model that `headwise download` has fetched, such as "en-de"; or a name of
            the Hugging Face Hub: OWNER/NAME for a model in the local cache, hf:OWNER/NAME to download it. A list of
            folders of translation models with the same tokenizer is an ensemble.
        device: "auto", "cpu" or "cuda".
        dtype: precision: "auto", "float32", "float16" or "bfloat16".

            A pretrained model has its parameters in this precision. "auto" is float32 on a CPU; on a GPU it is that of
            the file, and a float32 file is decoded in float16 or bfloat16 (see `SearchSettings.compute`). Weights that
            the file has in this precision are mapped into memory, so processes share them. Other weights are
            converted, which takes 4 bytes (half precision: 2) of memory for each parameter.

            A translation model trained here keeps its parameters in float32, and only decodes in this precision;
            `translate(..., compute=...)` changes it for one call.
            Other models trained here support float32 only.
        ignore_keys: unknown keys in the config.json of a pretrained model to ignore, which are errors otherwise. If
            keys are ignored, results may differ from those of other software.

    Returns:
        A `Model` of the class for its network: a translator, a language model, a classifier and so on. A method that
        the class does not have raises a `UserError` that lists the methods it has.

    Raises:
        UserError: there is no such model, or a part of it is missing, unsupported or inconsistent.
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
    """`load` for models that translate; for any other model a `UserError` that lists its methods."""
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
