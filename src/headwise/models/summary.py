"""A summary of a model in about ten rows, for `headwise info`; `Model.info()` has everything else.

Empty rows are left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from headwise.config.settings import RunConfig, SearchSettings
from headwise.config.tasks import TASKS
from headwise.errors import UserError
from headwise.models.commands import commands_of
from headwise.runtime.checkpoint.adapter_folders import describe_adapters, tensor_files
from headwise.runtime.checkpoint.compiled import described
from headwise.runtime.checkpoint.layout import WEIGHTS, is_family
from headwise.runtime.checkpoint.manifest import MANIFEST, check_manifest
from headwise.runtime.checkpoint.model_card import card_rows, read_rows
from headwise.runtime.checkpoint.sidecar_files import SHORTLIST
from headwise.runtime.checkpoint.trained import CARD, RUN
from headwise.runtime.tokenizers.special_tokens import tokenizer_values
from headwise.text.files.sources import count_of

NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # names in safetensors: ours
CODE = r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2})"  # language codes of M2M-100, NLLB and mBART


def summary(folder: Path, model: Any) -> dict[str, str]:
    """The rows of the model that `headwise.load` made of `folder`."""
    rows = _of_family(folder, model) if is_family(folder) else _of_ours(folder, model)
    if names := check_manifest(folder):
        rows["digests"] = f"{len(names)} files are as {MANIFEST} lists them"
    elif not is_family(folder):
        rows["digests"] = f"none; `headwise seal {folder}` writes {MANIFEST}, to find damage"
    return rows


def size_text(size: int) -> str:
    """A number of bytes with a unit.

    >>> size_text(5_505_096)
    '5.5 MB'
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def short_list(names: Sequence[str], shown: int = 5) -> str:
    """The number of names and the first of them.

    >>> short_list(["de", "en", "fr"], shown=2)
    '3: de, en ...'
    """
    return ", ".join(names) if len(names) <= shown else f"{len(names)}: {', '.join(names[:shown])} ..."


def _of_ours(folder: Path, model: Any) -> dict[str, str]:
    """A model trained here."""
    config: RunConfig = model.config
    shapes, numbers = _stored([folder / WEIGHTS])
    card = read_rows((folder / CARD).read_text(encoding="utf-8")) if (folder / CARD).is_file() else {}
    rows = {"parameters": f"{sum(shapes):,}"}
    if "corpus" in model.about:  # the training data may be unknown
        rows = card_rows(config, model.about, sum(shapes))
        del rows["validation data"]
    written = datetime.fromtimestamp((folder / WEIGHTS).stat().st_mtime)
    rows["weights"] = f"{card.get('weights', 'of an unknown step')}, file from {written:%Y-%m-%d %H:%M}"
    rows |= {"validation": card["validation"]} if "validation" in card else {}
    rows["on disk"] = f"{size_text((folder / WEIGHTS).stat().st_size)} in {numbers}"
    if config.model.task == "translate":
        shortlist = ", with a shortlist for --shortlist" if (folder / SHORTLIST).is_file() else ""
        rows["translated by"] = f"{model.engine}, in {model.precision}{shortlist}"
        rows["search"] = _search(config.decode)
    return {
        "model": f"{TASKS[config.model.task].noun}, trained with Headwise {model.about.get('headwise', '')}".strip(),
        "for": _commands(model),
        **rows,
    }


def _search(settings: SearchSettings) -> str:
    """Beam size, length penalty and the settings that are not the usual ones.

    >>> _search(SearchSettings(beam_size=5, max_length_extra=200))
    'beam_size 5, length_penalty 0.6, max_length_extra 200'
    """
    usual = {**asdict(SearchSettings()), "beam_size": None, "length_penalty": None}
    return ", ".join(f"{name} {value}" for name, value in asdict(settings).items() if value != usual[name])


def _stored(files: Iterable[Path]) -> tuple[list[int], str]:
    """The number of elements of each tensor in safetensors files, and their precision."""
    from safetensors import safe_open

    counts, kinds = [], set()
    for path in files:
        with safe_open(path, "np") as file:
            for key in file.keys():  # noqa: SIM118, not a dictionary
                part, count = file.get_slice(key), 1
                for length in part.get_shape():
                    count *= length
                counts.append(count)
                kinds.add(NAMES.get(part.get_dtype(), ""))
    return counts, " and ".join(sorted(kinds - {""}))


# --- Pretrained models ---


def _of_family(folder: Path, model: Any) -> dict[str, str]:
    """A folder in the Hugging Face layout, or an imported one."""
    own = model.dtype
    files = tensor_files(folder)
    stored = _stored(files)[1] if files[0].suffix == ".safetensors" else own
    size = size_text(sum(file.stat().st_size for file in files))
    info, values = model.info(), model.hf_config
    rows = {
        "model": f"{info['family']}{_saved_as(values)}{', without this head' * bool(model.missing_head)}",
        "for": _commands(model),
        "languages": short_list(_languages(model)),
        "classes": short_list([str(name) for name in (values.get("id2label") or {}).values()])
        if _classifies(model)
        else "",
        "architecture": _architecture(info),
        "parameters": f"{info['parameters']:,}",
        "vocabulary": f"{info['vocab_size']:,} tokens" if info.get("vocab_size") else "",
        "adapters": describe_adapters(folder),
        **_trained_here(folder),
        "on disk": f"{size} in {stored}" + (f", {len(files)} files" if len(files) > 1 else ""),
        "computed by": f"{described() if model.compiled else 'torch'}, "
        f"in {'float32' if own == 'float32' or model.device.type == 'cpu' else own}",
        "search": _search(model.generation.settings) if getattr(model, "generation", None) else "",
        "saved by": f"transformers {values['transformers_version']}" if values.get("transformers_version") else "",
    }
    return {name: text for name, text in rows.items() if text}


def _trained_here(folder: Path) -> dict[str, str]:
    """The training of a model that was fine-tuned here, from its card."""
    if not ((folder / RUN).is_file() and (folder / CARD).is_file()):
        return {}
    card = read_rows((folder / CARD).read_text(encoding="utf-8"))
    return {name: card.get(name, "") for name in ("training data", "recipe", "weights", "validation")}


def _saved_as(values: Mapping[str, Any]) -> str:
    names = values.get("architectures") or []
    return f" ({', '.join(names)})" if names else ""


def _commands(model: Any) -> str:
    return ", ".join(commands_of(model)) or "nothing: no command uses its head"


def _classifies(model: Any) -> bool:
    return bool(getattr(getattr(model, "config", None), "n_classes", 0))


def _languages(model: Any) -> list[str]:
    """The codes of its languages; for a model of one language pair that pair."""
    if hasattr(model, "transcribe"):
        return _spoken(model)
    if not hasattr(model, "languages"):
        return []
    settings, tasks = tokenizer_values(model.path), model.hf_config.get("task_specific_params") or {}
    if settings.get("source_lang") and settings.get("target_lang"):
        return [f"{settings['source_lang']} to {settings['target_lang']}"]
    special = [one.get("content", "") if isinstance(one, dict) else one for one in _special(settings)]
    codes = [found[1] or found[2] for found in (re.fullmatch(CODE, str(token)) for token in special) if found]
    pairs = [re.fullmatch(r"translation_(\w+)_to_(\w+)", name) for name in tasks]
    return sorted(codes) or [f"{found[1]} to {found[2]}" for found in pairs if found]


def _spoken(model: Any) -> list[str]:
    try:
        return sorted(model.special_tokens.languages)
    except UserError:  # no vocabulary, or unknown tokens of languages
        return []


def _special(settings: Mapping[str, Any]) -> list[Any]:
    """The special tokens in `tokenizer_config.json`, in either of its formats."""
    listed = settings.get("additional_special_tokens") or settings.get("extra_special_tokens") or []
    return list(listed.values()) if isinstance(listed, dict) else list(listed)


def _architecture(info: Mapping[str, Any]) -> str:
    """Layers and widths of each stack."""
    stacks = {side: info[side] for side in ("encoder", "decoder") if info.get(side)}
    if not stacks:
        return _stack(info)
    return "; ".join(f"{side} of {_stack(stack)}" for side, stack in stacks.items())


def _stack(c: Mapping[str, Any]) -> str:
    fewer = f" ({c['n_kv_heads']} for keys and values)" if c.get("n_kv_heads", 0) not in (0, c["n_heads"]) else ""
    reach = f", at most {c['max_len']:,} positions" if c.get("max_len") else ""
    layers = count_of(c["n_layers"], "layer")
    return f"{layers}, d_model {c['d_model']}, d_ff {c['d_ff']}, {count_of(c['n_heads'], 'head')}{fewer}{reach}"
