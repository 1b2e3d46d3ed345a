"""The public verbs: `load` a model, `train` one. Everything a program needs to use Sightline as a library.

What only training, scoring or drafts need is imported there: a first translation is not to wait for it. Torch itself is
one of these things where the compiled library can translate (`checkpoint.compiled`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from sightline.checkpoint.folder import Folder
from sightline.checkpoint.read import read_folder
from sightline.checkpoint.trained_network import Trained
from sightline.config.tasks import TASKS
from sightline.device import choose_device, device_name
from sightline.errors import UserError
from sightline.models.kinds import model_kind
from sightline.models.model import Model
from sightline.models.translator import TrainedTranslator


def load(path: str | Path | Sequence[str | Path], device: str = "auto", dtype: str = "auto") -> Model:
    """The model in a directory that `train` wrote, or in a folder in the Hugging Face layout; or several as one.

    Args:
        path: the folder; or OWNER/NAME of the Hugging Face hub, if it is in its cache, and hf:OWNER/NAME to fetch it.
            A list of model directories of one tokenizer is an ensemble.
        device: "auto", "cpu" or "cuda".
        dtype: numbers to compute with: "float32", "float16" or "bfloat16". "auto" is float32 on a CPU, elsewhere what
            the file has. Weights that are in the file as they are asked for are mapped into memory, pages that
            processes share and the system may drop; others are converted, a copy of 4 bytes (half precision: 2) a
            parameter beside the file. Networks that Sightline has trained stay float32: these numbers are what they
            decode with, as `translate(..., compute=...)` has it for one call.

    Returns:
        A `Model`. What it can be asked depends on what its network reads and writes; any other verb is a `UserError`
        that says what this model can do.

    Raises:
        UserError: there is no such model, or something in it is missing, not understood or does not fit.
    """
    if not isinstance(path, str | Path):
        return load_translators(path, device, dtype)
    return _model_of(read_folder(path, device_name(device), dtype), dtype)


def _model_of(folder: Folder, dtype: str) -> Model:
    if not isinstance(folder.weights, Trained):
        return pretrained_model(folder)
    return resolve_name(TASKS[folder.config.model.task].model)(_decoding_in(dtype, folder))


def pretrained_model(folder: Folder) -> Model:
    """The model of a folder in the Hugging Face layout, or one that `sightline import` wrote."""
    kind: Any = resolve_name(f"sightline.models.{model_kind(folder.config)}")
    if kind.__name__ == "RewritingModel":
        return kind(folder.network, folder.config, folder.about, folder.path, choose_device(folder.device))
    return kind(folder)


def _decoding_in(dtype: str, folder: Folder) -> Folder:
    """A model that we have trained, whose network is float32: what it can decode with is its decoder's affair."""
    config = folder.config
    if dtype in ("auto", "float32"):
        return folder
    if config.model.task != "translate":
        raise UserError(f"{folder.path}: dtype = {dtype} is for models that translate, and for published ones")
    return replace(folder, config=replace(config, decode=replace(config.decode, compute=dtype)))


def load_translator(path: str | Path, device: str = "auto", dtype: str = "auto") -> Model:
    """`load` for what reads a text and writes another; `UserError`, with what it can do, for any other model."""
    model = _model_of(read_folder(path, device_name(device), dtype, tasks=("translate",)), dtype)
    _ = model.translate
    return model


def load_task(task: str, path: str | Path, device: str = "auto", published: bool = False) -> Model:
    """`load` for a model that `train` wrote for `task`, or a `published` one; `UserError` where it is another."""
    return _model_of(read_folder(path, device_name(device), tasks=(task,), published=published), "auto")


def load_trained(path: str | Path, device: str = "auto") -> TrainedTranslator:
    """`load` for a translation model that `train` wrote; `UserError` where it is one of another task or layout."""
    return TrainedTranslator(read_folder(path, device_name(device), tasks=("translate",), published=False))


def load_translators(paths: Sequence[str | Path], device: str = "auto", dtype: str = "auto") -> Model:
    """One model that translates, or several as an ensemble; a `UserError` names what does not go with them."""
    if not paths:
        raise UserError("load takes a model directory, or a list of them; this list is empty")
    if len(paths) == 1:
        return load_translator(paths[0], device, dtype)
    models = [load_translator(path, device, dtype) for path in paths]
    trained = [model for model in models if isinstance(model, TrainedTranslator)]
    if len(trained) < len(models):
        from sightline.models.together import together

        return together(models)
    from sightline.models.ensemble import Ensemble

    return Ensemble(trained)


def load_alignment() -> None:
    """Import what aligns words, if torch is installed: seconds and 200 MiB that translating does not need."""
    with suppress(ImportError):
        import sightline.models.pair_inspector  # noqa: F401
