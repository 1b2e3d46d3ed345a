"""The folder of a model trained here: everything that its task needs, without references to other files.

`config.json` (settings and origin), `model.safetensors`, `tokenizer.json`, `generation_config.json` (search settings)
and `README.md` (the model card); see also `sidecar_files`. Nothing is ever unpickled. Each file is replaced in one
step, so that a reader never sees half of one, and `manifest` lists their digests.

A classifier has no search settings, a forecaster also no tokenizer; labels and statistics of a series are in
`config.json`. Nothing here needs torch.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import save_file

from headwise.config.settings import RunConfig, SearchSettings, check, from_dict
from headwise.errors import UserError, most_similar, writing
from headwise.runtime.checkpoint.layout import read_json
from headwise.runtime.checkpoint.manifest import replace_listed, seal
from headwise.runtime.formats.weights import WeightsFile
from headwise.text.tokens.tokenizer import Tokenizer

FORMAT = 2  # of settings
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
GENERATION, CARD = "generation_config.json", "README.md"
RUN = "training.json"  # how a model in the Hugging Face layout was trained, in the format of our config.json


def write_settings(folder: Path, config: RunConfig, tokenizer: Tokenizer | None, about: Mapping[str, Any]) -> None:
    """Write all files but the weights and the card."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    tables = config.as_dict()
    if "tokenizer" in tables["data"]:
        tables["data"]["tokenizer"] = ""  # a model directory points nowhere else
    if tokenizer:
        write_file(folder / TOKENIZER, tokenizer.save)
    if config.model.task == "translate":
        write_json(folder / GENERATION, asdict(config.decode))
    write_json(folder / CONFIG, {"format": FORMAT, **about, **tables})


def write_weights(folder: Path, parameters: Mapping[str, Any], card: str) -> None:
    """The weights in float32, tensors on any device, the model card, and the manifest last."""
    arrays = {name: value.detach().float().cpu().contiguous().numpy() for name, value in parameters.items()}
    write_file(folder / WEIGHTS, lambda path: save_file(arrays, path, {"format": "pt"}))
    write_text(folder / CARD, card)
    seal(folder)


def write_decoding(folder: Path, decode: SearchSettings, edit: Callable[[str], str]) -> None:
    """Replace the search settings, and `edit` the model card."""
    write_json(folder / GENERATION, asdict(decode))
    card = folder / CARD
    if card.is_file():
        write_text(card, edit(card.read_text(encoding="utf-8")))


def read_settings(folder: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration of a model folder, and the rest of its config.json."""
    tables = read_json(folder / CONFIG)
    match tables:
        case {"family": {"family": family}} | {"model_type": family}:  # imported, or in the Hugging Face layout
            raise UserError(
                f"{folder}: is a checkpoint of a family ({family}), and this needs a model that `headwise train` "
                "made; such a folder is for whatever else its network can do: `headwise info` says what that is"
            )
    config, about = _settings_of(folder / CONFIG, tables)
    if (folder / GENERATION).is_file():
        config = from_dict({"decode": read_json(folder / GENERATION)}, str(folder / GENERATION), config)
    return check(config), about


def read_run(folder: Path) -> tuple[RunConfig, dict[str, Any]]:
    """`read_settings` for the folder of a run, in either layout."""
    path = folder / RUN
    if not path.is_file():
        return read_settings(folder)
    config, about = _settings_of(path, read_json(path))
    return check(config), about


def _settings_of(path: Path, tables: dict[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    if tables.get("format") != FORMAT:
        raise UserError(f"{path}: format {tables.get('format')!r} is not {FORMAT}; another version made it")
    sections = {name: tables.pop(name) for name in ("model", "data", "train", "decode") if name in tables}
    return from_dict(sections, str(path)), tables


def settings_for(tasks: Sequence[str] | None, path: str | Path) -> tuple[RunConfig, dict[str, Any]]:
    """`read_settings` of a model that was trained for one of `tasks` (None: any), or `UserError`."""
    config, about = _find_settings(path)
    made_for = config.model.task
    if tasks and made_for not in tasks:
        use = f"use `headwise {made_for}` with it"
        if made_for == "denoise":
            use = f"a translator starts from it: `headwise train --init {path}`"
        raise UserError(f"{path}: was trained to {made_for}, not to {tasks[0]}; {use}")
    return config, about


def _find_settings(path: str | Path) -> tuple[RunConfig, dict[str, Any]]:
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(f"{path}: no such model directory{_nearest(folder)}")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{path}: has no {CONFIG}, so it is no model directory{_nearest(folder)}")
    return read_settings(folder)


def read_weights(path: str | Path) -> WeightsFile:
    """The parameters of a model folder."""
    folder = Path(path)
    if not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder}: has no {WEIGHTS} yet; its training was stopped before the first validation")
    return WeightsFile(folder / WEIGHTS)


def read_tokenizer(path: str | Path, config: RunConfig) -> Tokenizer:
    """The tokenizer of a model folder; `UserError` if its size is not that of the model."""
    folder = Path(path)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(
            f"{folder / TOKENIZER}: has {tokenizer.vocab_size} tokens, but the model was trained with "
            f"{config.model.vocab_size}; put the model's own tokenizer back"
        )
    return tokenizer


def _nearest(folder: Path) -> str:
    """A hint at a model folder below a wrong path, or beside it with a similar name."""
    below, beside = (
        sorted(found.parent.name for found in near.glob(f"*/{CONFIG}")) for near in (folder, folder.parent)
    )
    similar = most_similar(folder.name, beside)
    near = folder / below[0] if below else similar and folder.parent / similar
    return f"; did you mean '{near}'?" if near else "; give the folder that `headwise train --out` wrote"


def write_file(path: Path, writer: Callable[[Path], Any]) -> None:
    """Write a file of a model folder in one step, with the usual permissions.

    safetensors (0.8) would make weights readable for their owner only, and a server with another user could not open
    the model.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path, SafetensorError):
        try:
            draft.touch()
            mode = draft.stat().st_mode
            writer(draft)
            draft.chmod(mode)
            replace_listed(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file of a model folder in one step; `UserError` if that fails."""
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_file(path, lambda draft: draft.write_text(text, encoding="utf-8", newline="\n"))


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """The same for an object or a list, without escapes."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def noted(path: Path, about: Mapping[str, Any], name: str, kind: type) -> Any:
    """A value that a task saved in config.json; `UserError` if it is missing."""
    if not isinstance(about.get(name), kind):
        raise UserError(f"{path / CONFIG}: has no '{name}', which a model of its task needs; restore the file")
    return about[name]


def write_length_penalty(folder: Path, value: float) -> None:
    """Set it for a pretrained model, for `transformers` as well; `UserError` without a file for such settings."""
    path = folder / GENERATION
    if not path.is_file():
        raise UserError(f"{folder}: has no {GENERATION}, where the value would stand; save one with transformers")
    write_json(path, {**read_json(path), "length_penalty": value})
