"""The model directory: a folder that holds everything translation needs and points nowhere else.

`config.json` (how it was made), `model.safetensors`, `tokenizer.json`, `generation_config.json` (how to decode) and
`README.md` (the model card); `shortlist.safetensors` where one was learnt, `alignment.json` where the attention that
aligns words best was chosen. Nothing in it is ever unpickled. Each file is replaced in one step, so that a reader never
sees half of one. A classifier does without the search settings, a forecaster also without a tokenizer; labels and the
statistics of a series stand in `config.json`.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import safetensors.numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sightline.architectures import Network, build_network, build_pooled
from sightline.config import ModelConfig, RunConfig, check, from_dict
from sightline.data.series import Scaling
from sightline.data.shortlist import Shortlist
from sightline.data.tokenizer import Tokenizer
from sightline.errors import UserError
from sightline.model.heads import PooledEncoder
from sightline.model.parameters import load_parameters

Kind = TypeVar("Kind", bound=nn.Module)

FORMAT = 1
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
GENERATION, CARD = "generation_config.json", "README.md"
SHORTLIST = "shortlist.safetensors"
ALIGNMENT = "alignment.json"


@dataclass(frozen=True)
class ModelDirectory:
    """What a model directory holds, read and checked."""

    network: Network
    tokenizer: Tokenizer
    config: RunConfig
    about: dict[str, Any]  # the rest of config.json: versions, recipe, corpus


@dataclass(frozen=True)
class ClassifierDirectory:
    """The same of a classifier."""

    network: PooledEncoder
    tokenizer: Tokenizer
    labels: tuple[str, ...]  # class i is labels[i]
    config: RunConfig
    about: dict[str, Any]


@dataclass(frozen=True)
class ForecasterDirectory:
    """The same of a forecaster."""

    network: PooledEncoder
    scaling: Scaling
    config: RunConfig
    about: dict[str, Any]


def write_settings(folder: Path, config: RunConfig, tokenizer: Tokenizer | None, about: Mapping[str, Any]) -> None:
    """Everything but the weights and the card."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = replace(config, data=replace(config.data, tokenizer="")).as_dict()
    if tokenizer:
        _write(folder / TOKENIZER, tokenizer.save)
    if config.model.task == "translate":
        _write_json(folder / GENERATION, asdict(config.decode))
    _write_json(folder / CONFIG, {"format": FORMAT, **about, **tables})


def write_weights(folder: Path, parameters: Mapping[str, Tensor], card: str) -> None:
    """The weights, in float32 and on no device, and the model card."""
    tensors = {name: value.detach().to("cpu", torch.float32).contiguous() for name, value in parameters.items()}
    _write(folder / WEIGHTS, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    _write(folder / CARD, lambda path: path.write_text(card, encoding="utf-8"))


def read_settings(folder: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration of a model directory, and what else its config.json says."""
    tables = _read_json(folder / CONFIG)
    if tables.get("format") != FORMAT:
        raise UserError(f"{folder / CONFIG}: format {tables.get('format')!r} is not {FORMAT}; another version made it")
    sections = {name: tables.pop(name) for name in ("model", "data", "train", "decode") if name in tables}
    config = from_dict(sections, str(folder / CONFIG))
    if (folder / GENERATION).is_file():
        config = from_dict({"decode": _read_json(folder / GENERATION)}, str(folder / GENERATION), config)
    return check(config), tables


def task_of(path: str | Path) -> str:
    """What the model in `path` was trained for; `UserError` where there is none."""
    return _find_settings(path)[0].model.task


def read_model_directory(path: str | Path, device: str | torch.device = "cpu") -> ModelDirectory:
    """Read the translation model in `path`; `UserError` names what is missing or does not fit."""
    config, about = _settings_for("translate", path)
    network = _read_network(path, config, build_network, device)
    return ModelDirectory(network, _read_tokenizer(path, config), config, about)


def read_classifier_directory(path: str | Path, device: str | torch.device = "cpu") -> ClassifierDirectory:
    """Read the classifier in `path`; errors as of `read_model_directory`."""
    config, about = _settings_for("classify", path)
    labels = tuple(_own(path, about, "labels", list))
    if len(labels) != config.model.n_outputs:
        raise UserError(
            f"{Path(path) / CONFIG}: has {len(labels)} labels, but the model {config.model.n_outputs} classes"
        )
    network = _read_network(path, config, build_pooled, device)
    return ClassifierDirectory(network, _read_tokenizer(path, config), labels, config, about)


def read_forecaster_directory(path: str | Path, device: str | torch.device = "cpu") -> ForecasterDirectory:
    """Read the forecaster in `path`; errors as of `read_model_directory`."""
    config, about = _settings_for("forecast", path)
    try:
        scaling = Scaling.of(_own(path, about, "series", dict))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{Path(path) / CONFIG}: 'series' is damaged ({type(error).__name__}: {error})") from None
    return ForecasterDirectory(_read_network(path, config, build_pooled, device), scaling, config, about)


def _own(path: str | Path, about: Mapping[str, Any], name: str, kind: type) -> Any:
    """What a task has noted in config.json."""
    if not isinstance(about.get(name), kind):
        raise UserError(f"{Path(path) / CONFIG}: has no '{name}', which a model of its task needs; restore the file")
    return about[name]


def _settings_for(task: str, path: str | Path) -> tuple[RunConfig, dict[str, Any]]:
    config, about = _find_settings(path)
    if config.model.task != task:
        made_for = config.model.task
        raise UserError(f"{path}: was trained to {made_for}, not to {task}; use `sightline {made_for}` with it")
    return config, about


def _find_settings(path: str | Path) -> tuple[RunConfig, dict[str, Any]]:
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(f"{path}: no such model directory{_nearest(folder)}")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{path}: has no {CONFIG}, so it is no model directory{_nearest(folder)}")
    return read_settings(folder)


def _read_network(
    path: str | Path, config: RunConfig, build: Callable[[ModelConfig], Kind], device: str | torch.device
) -> Kind:
    """The network with its weights, in evaluation mode."""
    folder = Path(path)
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder}: has no {WEIGHTS} yet; its training was stopped before the first validation")
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder / WEIGHTS}: damaged or not a safetensors file ({error})") from None
    with torch.random.fork_rng(devices=[]):  # fresh parameters are drawn and overwritten: not at the caller's cost
        network = build(config.model)
    load_parameters(network, tensors, str(folder / WEIGHTS))
    return network.to(device).eval()


def _read_tokenizer(path: str | Path, config: RunConfig) -> Tokenizer:
    folder = Path(path)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(
            f"{folder / TOKENIZER}: has {tokenizer.vocab_size} pieces, but the model was trained with "
            f"{config.model.vocab_size}; put the model's own tokenizer back"
        )
    return tokenizer


def write_shortlist(folder: Path, shortlist: Shortlist, tokenizer: Tokenizer) -> Path:
    """The shortlist of a model directory; returns where it is."""
    path = folder / SHORTLIST
    tensors = {"frequent": shortlist.frequent, "likely": shortlist.likely}
    metadata = {"tokenizer": tokenizer.fingerprint}
    _write(path, lambda draft: safetensors.numpy.save_file(tensors, draft, metadata))
    return path


def read_shortlist(folder: Path, tokenizer: Tokenizer) -> Shortlist:
    """The shortlist of a model directory; `UserError` where there is none or one of another tokenizer's pieces."""
    path = folder / SHORTLIST
    learn = f"`sightline shortlist {folder} --train SRC TGT`"
    if not path.is_file():
        raise UserError(f"{folder}: has no {SHORTLIST}; learn one with {learn}, or do without --shortlist")
    try:
        with safe_open(path, "np") as file:
            made_for = (file.metadata() or {}).get("tokenizer")
            shortlist = Shortlist(file.get_tensor("frequent"), file.get_tensor("likely"))
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged or no shortlist ({error}); learn it anew with {learn}") from None
    if made_for != tokenizer.fingerprint or len(shortlist.likely) != tokenizer.vocab_size:
        raise UserError(f"{path}: was learnt for another tokenizer; learn it anew with {learn}")
    return shortlist


def write_alignment(folder: Path, head: Mapping[str, Any]) -> Path:
    """Which attention aligns words, as `sightline.inspect.alignment.AlignmentHead` puts it; returns the file."""
    _write_json(folder / ALIGNMENT, head)
    return folder / ALIGNMENT


def read_alignment(folder: Path) -> dict[str, Any] | None:
    """What `write_alignment` wrote; None where nothing was chosen."""
    path = folder / ALIGNMENT
    if not path.is_file():
        return None
    head = _read_json(path)
    kinds = {"layer": int, "head": int | None, "row": str}
    if head.keys() != kinds.keys() or not all(isinstance(head[name], kind) for name, kind in kinds.items()):
        raise UserError(f"{path}: must say layer, head and row; choose anew with `sightline align {folder} --choose`")
    return head


def _nearest(folder: Path) -> str:
    """A hint at a model directory of a similar name beside or below a wrong path."""
    around = [folder.parent, folder] if folder.is_dir() else [folder.parent]
    models = [str(found.parent) for place in around if place.is_dir() for found in place.glob(f"*/{CONFIG}")]
    near = get_close_matches(str(folder), models, n=1, cutoff=0.0)
    return f"; did you mean '{near[0]}'?" if near else "; give the folder that `sightline train --out` wrote"


def _write(path: Path, writer: Callable[[Path], Any]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        writer(draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    _write(path, lambda draft: draft.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error})") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a JSON object")
    return value
