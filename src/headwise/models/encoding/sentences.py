"""The settings of a folder of sentence-transformers, which are the defaults of `embed`.

`modules.json` lists a network, a pooling and further steps (`Dense`, `Normalize`); the module of the network limits the
length of texts, and `config_sentence_transformers.json` has prompts. Everything else is an error, because the vectors
would differ. See `embed` for the arithmetic.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from headwise.errors import UserError, unknown
from headwise.models.encoding.embed import ACTIVATIONS, POOLINGS, Dense, VectorStep, unit
from headwise.runtime.checkpoint.layout import CONFIG, read_json, weight_files
from headwise.runtime.checkpoint.modules import MODULES, PROMPTS, READING, Module, modules_of_network
from headwise.runtime.formats.weights import WeightsFile
from headwise.runtime.tokenizers.special_tokens import tokenizer_values

OpenTensors = Callable[[Path], Mapping[str, Any]]  # the tensors of torch in a folder
IDLE = ("Dropout",)  # modules for training only
NAMES = {"cls": "first", "mean_sqrt_len_tokens": "mean_sqrt_len", "weightedmean": "weighted_mean", "lasttoken": "last"}
FLAGS = {  # of folders older than `pooling_mode`
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}
# Other settings of modules, with their values that have no effect.
NOTHING: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",),
    "query_expansion": (None,),
    "processing_kwargs": (None, {}),
    "module_input_name": (None, "sentence_embedding"),
    "module_output_name": (None, "sentence_embedding", "token_embeddings"),
    "use_residual": (None, False),
}


@dataclass(frozen=True)
class SentenceSettings:
    """Preprocessing of a text, and pooling of the states of the network."""

    poolings: tuple[str, ...] = ("mean",)
    steps: tuple[VectorStep, ...] = (unit,)
    max_tokens: int = 0  # of a text, special tokens included; 0 = the limit of the network
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)  # texts that may be put before a text, by name
    default_prompt: str = ""  # the name of one of them
    pool_prompt: bool = True  # whether states of the prompt are pooled, too

    def changed(self, pooling: str, normalize: bool | None) -> "SentenceSettings":
        """A copy with another pooling unless "", and with or without normalisation unless None."""
        if pooling and pooling not in POOLINGS:
            raise unknown("pooling", pooling, POOLINGS)
        steps = self.steps
        if normalize is False:
            steps = tuple(step for step in steps if step is not unit)
        elif normalize and steps[-1:] != (unit,):
            steps = (*steps, unit)
        return replace(self, poolings=(pooling,) if pooling else self.poolings, steps=steps)

    def prompt(self, name: str | None) -> str:
        """The prompt with this name; None is the default, "" none."""
        name = self.default_prompt if name is None else name
        if name and name not in self.prompts:
            raise (
                unknown("prompt", name, self.prompts)
                if self.prompts
                else UserError(f"prompt '{name}': this model has no prompts; write it before the texts")
            )
        return self.prompts[name] if name else ""

    def width(self, d_model: int) -> int:
        """The width of the vectors; `UserError` if a layer does not fit the one before it."""
        width = d_model * len(self.poolings)
        for step in self.steps:
            if isinstance(step, Dense):
                out, wanted = step.weight.shape
                if wanted != width:
                    chosen = " + ".join(self.poolings)
                    raise UserError(f"pooling {chosen} gives width {width}, but the next layer takes {wanted}")
                width = out
        return width


def read_sentence_settings(folder: Path, open_tensors: OpenTensors) -> SentenceSettings:
    """The settings of a folder; by default the mean, normalised to length 1.

    Args:
        open_tensors: `checkpoint.adapters.open_tensors`, for files other than safetensors.

    Raises:
        UserError: an unsupported setting, or a malformed file.
    """
    modules = modules_of_network(folder)
    if not modules:
        return SentenceSettings()
    if [modules[0].kind, modules[0].folder.absolute()] != ["Transformer", folder.absolute()]:
        raise UserError(f"{folder / MODULES}: must begin with the Transformer of this folder, not {modules[0].kind}")
    if len(modules) < 2 or modules[1].kind != "Pooling":
        raise UserError(f"{folder / MODULES}: has no Pooling after its Transformer")
    steps = tuple(_step(module, folder, open_tensors) for module in modules[2:] if module.kind not in IDLE)
    return SentenceSettings(steps=steps, **_pooling(modules[1].folder), **_reading(folder), **_prompts(folder))


def _step(module: Module, folder: Path, open_tensors: OpenTensors) -> VectorStep:
    if module.kind == "Normalize":
        _refuse_more(module.folder / CONFIG)
        return unit
    if module.kind == "Dense":
        return _dense(module.folder, open_tensors)
    known = ", ".join(("Transformer", "Pooling", "Dense", "Normalize"))
    raise UserError(f"{folder / MODULES}: {module.kind} is not supported; known are {known}")


def _pooling(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    values = read_json(path)
    named = values.get("pooling_mode")
    if named is None:
        flags = [key for key, value in values.items() if key.startswith("pooling_mode_") and value]
        strange = [key for key in flags if key not in FLAGS]
        if strange:
            raise unknown(f"{path}: pooling", strange[0], FLAGS)
        chosen = [pooling for key, pooling in FLAGS.items() if key in flags] or ["mean"]
    else:
        listed = [str(name) for name in (named if isinstance(named, list) else [named])]
        chosen = [NAMES.get(name, name) for name in listed]
        if not chosen or not set(chosen) <= POOLINGS.keys():
            raise unknown(f"{path}: pooling_mode", ", ".join(listed), ["max", "mean", *NAMES])
    return {"poolings": tuple(chosen), "pool_prompt": bool(values.get("include_prompt", True))}


def _dense(folder: Path, open_tensors: OpenTensors) -> Dense:
    path = folder / CONFIG
    values = _refuse_more(path)
    kind = str(values.get("activation_function", "torch.nn.Tanh"))
    name = kind.rpartition(".")[2]
    if name not in ACTIVATIONS or not kind.startswith("torch.nn."):
        raise unknown(f"{path}: activation_function", kind, [f"torch.nn.{name}" for name in ACTIVATIONS])
    tensors = _arrays(folder, open_tensors)
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    shape = (values.get("out_features"), values.get("in_features"))
    if weight is None or tuple(weight.shape) != shape or (bias is not None and tuple(bias.shape) != shape[:1]):
        held = ", ".join(f"{key} {list(tensor.shape)}" for key, tensor in tensors.items())
        raise UserError(f"{path}: a layer of {shape[1]} to {shape[0]} numbers does not fit its tensors: {held}")
    return Dense(weight, bias if values.get("bias", True) else None, name)


def _arrays(folder: Path, open_tensors: OpenTensors) -> dict[str, np.ndarray]:
    files = weight_files(folder)
    if files[0].suffix == ".safetensors":
        return {key: array for path in files for key, array in WeightsFile(path).items()}
    return {key: tensor.float().numpy() for key, tensor in open_tensors(folder).items()}


def _reading(folder: Path) -> dict[str, Any]:
    """The settings of the network's module."""
    path = next((folder / name for name in READING if (folder / name).is_file()), folder / READING[0])
    values = _refuse_more(path)
    longest = values.get("max_seq_length")
    if longest is None:
        longest, path = tokenizer_values(folder).get("model_max_length"), folder / "tokenizer_config.json"
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int | float) or longest < 1):
        raise UserError(f"{path}: a longest text of {longest!r} tokens; it must be a number of at least 1, or null")
    return {"max_tokens": int(longest or 0), "lowercase": bool(values.get("do_lower_case"))}


def _prompts(folder: Path) -> dict[str, Any]:
    path = folder / PROMPTS
    values = read_json(path) if path.is_file() else {}
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name") or ""
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise UserError(f"{path}: prompts must be an object of names and texts")
    if default and default not in prompts:
        raise UserError(f"{path}: default_prompt_name {default!r} is none of its prompts: {', '.join(prompts) or '-'}")
    return {"prompts": {name: text or "" for name, text in prompts.items()}, "default_prompt": default}


def _refuse_more(path: Path) -> dict[str, Any]:
    """The values of a module's file, if it has one; `UserError` for unsupported settings."""
    values = read_json(path) if path.is_file() else {}
    for key, harmless in NOTHING.items():
        if key in values and values[key] not in harmless:
            raise UserError(f"{path}: {key} = {values[key]!r} is not supported")
    return values
