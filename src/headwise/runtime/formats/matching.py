"""Match the tensors of a pretrained checkpoint with parameters; all mismatches are listed in one `UserError`.

Works on any kind of tensors, so it needs no torch: `published` passes those of torch, `published_network` those of a
file that has not been read yet.
"""

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from headwise.config.network import NetworkConfig
from headwise.errors import UserError, unknown
from headwise.families.family import Family
from headwise.families.keys import Keys, UnknownKeys, short_value
from headwise.families.registry import FAMILIES
from headwise.families.table import Entry, entries
from headwise.runtime.checkpoint.layout import CONFIG
from headwise.runtime.checkpoint.shapes import ShapesByName

FLOATS = ("float32", "float16", "bfloat16", "float64")  # float64 is converted
COMPILED = "_orig_mod."  # prefix of a module in torch.compile, also in the middle of a name
T = TypeVar("T")


@dataclass(frozen=True)
class TensorsOf(Generic[T]):
    """The tensors of a file, and how to look at them."""

    tensors: Mapping[str, T]
    dtype_of: Callable[[T], str]
    equal: Callable[[T, T], bool]

    def renamed(self, tensors: Mapping[str, T]) -> "TensorsOf[T]":
        """Others of the same kind."""
        return TensorsOf(tensors, self.dtype_of, self.equal)


@dataclass(frozen=True)
class Matched(Generic[T]):
    """A checkpoint that fits: its configuration as saved, and the tensor of each entry of the family's table."""

    config: NetworkConfig
    entries: list[tuple[Entry, T]]
    notes: tuple[str, ...] = ()  # what config.json says differently, and what was left out


def family_of(values: Mapping[str, Any]) -> Family:
    """The family of a config.json; `UserError` if it is unknown."""
    kind = Keys(values).word("model_type", default="")
    if not kind:
        raise UserError(
            f'{CONFIG}: has no model_type, which names the family; if you know it, add it to the file: "model_type": '
            f"one of {', '.join(sorted(FAMILIES))}"
        )
    if kind not in FAMILIES:
        raise UserError(f"{CONFIG}: {unknown('model_type', kind[:60], FAMILIES)}")
    return FAMILIES[kind]


def checkpoint_config(values: Mapping[str, Any], folder: Path) -> tuple[Family, NetworkConfig]:
    """The family of a config.json and the axes that it describes; `UserError` for what is not understood."""
    try:
        family = family_of(values)
        return family, family.config_from_hf(values)
    except UserError as error:
        raise UserError(f"{folder}/{error}") from None


def without_keys(values: Mapping[str, Any], ignored: Collection[str], folder: Path) -> dict[str, Any]:
    """A config.json without unknown keys that the user wants to ignore; with a warning.

    Raises:
        UserError: one of them is known, so that ignoring it would change the network, or does not exist.
    """
    unknown_keys: Collection[str] = ()
    try:
        family_of(values).config_from_hf(values)
    except UnknownKeys as error:
        unknown_keys = error.names
    if others := sorted(set(ignored) - set(unknown_keys)):
        found = f"its unknown keys are {', '.join(sorted(unknown_keys))}" if unknown_keys else "it has no unknown keys"
        raise UserError(f"{folder / CONFIG}: {others[0]} cannot be ignored; {found}")
    listed = ", ".join(f"{key} = {short_value(values[key])}" for key in sorted(ignored))
    warnings.warn(f"{folder / CONFIG}: ignored {listed}; results may differ from those of other software", stacklevel=2)
    return {key: value for key, value in values.items() if key not in ignored}


def match_tensors(
    family: Family,
    config: NetworkConfig,
    found: TensorsOf[T],
    shapes_of: Callable[[NetworkConfig], ShapesByName],
    origin: str,
) -> Matched[T]:
    """The tensors of a file matched to our parameters; `shapes_of` gives the shapes of a network's parameters."""
    found = found.renamed(with_todays_names(found.tensors, family))
    saved = _as_saved(config, found, family)
    missing = _missing_head(saved, found.tensors, family, shapes_of(saved))
    if missing:
        saved = without_head(saved)
    tensors = _without_repeats(found.tensors, family, saved)
    shapes = shapes_of(saved)
    wanted = entries(family.table(saved), saved, shapes)
    more = _other_heads(tensors, family, {entry.key for entry in wanted})
    used = found.renamed({key: tensor for key, tensor in tensors.items() if key not in more})
    _refuse_misfits(wanted, used, shapes, family.ignored, origin)
    notes = [f"{_listed(more)} of another head: not read"] if more else []
    if missing:
        notes.append(f"has no {_listed(missing)}, the head that {CONFIG} names: read without a head")
    elif saved.n_classes != config.n_classes:
        notes.append(f"has {saved.n_classes} classes, although {CONFIG} lists {config.n_classes}")
    return Matched(saved, [(entry, tensors[entry.key]) for entry in wanted], tuple(f"{origin}: {n}" for n in notes))


def with_todays_names(tensors: Mapping[str, T], family: Family) -> dict[str, T]:
    """Keys in the current format: with the prefix of the network, norms with weight and bias, and without what
    `torch.compile` adds.
    """
    tensors = {key.replace(COMPILED, ""): tensor for key, tensor in tensors.items()}
    prefix = "" if any(key.startswith(family.prefix) for key in tensors) else family.prefix
    renamed = {prefix + re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key)): key for key in tensors}
    return {new: tensors[old] for new, old in renamed.items()}


def tied_keys(family: Family, config: NetworkConfig) -> dict[str, str]:
    """The names of tensors that repeat another one in a file, each with the key of the first: embeddings, output
    matrices and their biases, where `config.share_embeddings` and `config.tie_head` say that they are shared.
    """
    shared = {True: config.share_embeddings, False: config.tie_head}
    tied = {again: key for again, key in family.same.items() if shared["embed_tokens" in again]}
    embeddings = [_keys_of(family, config, f"{front}embeddings.tokens") for front in ("tgt_", "src_", "")]
    head, embedding = _keys_of(family, config, "head.output"), next(filter(None, embeddings), "")
    return tied | ({head: embedding} if config.tie_head and head and embedding else {})


def _as_saved(config: NetworkConfig, found: TensorsOf[Any], family: Family) -> NetworkConfig:
    """The configuration corrected by the file: matrices that are not shared there are separate, and a bias of logits
    that the file lacks does not exist (networks saved without their head are loaded with it).
    """
    repeated = [(repeat, key) for repeat, key in family.same.items() if "embed_tokens" in repeat]
    if any(_differ(found, repeat, key) for repeat, key in repeated):
        config = replace(config, share_embeddings=False)
    head = _keys_of(family, config, "head.output")
    embeddings = [_keys_of(family, config, f"{front}embeddings.tokens") for front in ("tgt_", "src_", "")]
    embedding = next(filter(None, embeddings), "")
    if config.tie_head and _differ(found, head, embedding):
        config = replace(config, tie_head=False)
    if config.head_bias and not any(key.endswith("logits_bias") for key in found.tensors):
        config = replace(config, head_bias=False)
    classes = found.tensors.get(_keys_of(family, config, "head.classes"))
    if classes is not None and config.n_classes and classes.shape[0]:
        config = replace(config, n_classes=classes.shape[0])
    return config


def without_head(config: NetworkConfig) -> NetworkConfig:
    """The body of a network."""
    return replace(config, head="none", head_bias=False, tie_head=False, n_classes=0)


def _missing_head(config: NetworkConfig, tensors: Collection[str], family: Family, shapes: ShapesByName) -> list[str]:
    """The tensors of the head, if the file has none of them and the family has networks without a head.

    A pooler, which a head may use, belongs to the body.
    """
    if "none" not in family.heads.values():
        return []
    own = entries(family.table(config), config, shapes)
    head = [one.key for one in own if one.names[0].startswith("head.") and not one.key.startswith(family.prefix)]
    return head if head and not any(key in tensors for key in head) else []


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:5]) + ", ..." * (len(keys) > 5)


def _other_heads(tensors: Mapping[str, T], family: Family, used: Collection[str]) -> list[str]:
    """Tensors beside the network, such as further heads, whose values cannot change it."""
    if not family.heads:
        return []
    outside = [key for key in tensors if not key.startswith(family.prefix) and not re.search(family.ignored, key)]
    return [key for key in outside if key not in used]


def _keys_of(family: Family, config: NetworkConfig, name: str) -> str:
    """The key in a file of the matrix called `name`; "" if the family has none."""
    for key, ours in family.table(replace(config, tie_head=False)).items():
        if ours.removesuffix(".weight") == name:
            return key.removesuffix(".weight") + ".weight"
    return ""


def _differ(found: TensorsOf[Any], one: str, other: str) -> bool:
    """Whether both exist and differ."""
    if one not in found.tensors or other not in found.tensors:
        return False
    first, second = found.tensors[one], found.tensors[other]
    return found.dtype_of(first) != found.dtype_of(second) or not found.equal(first, second)


def _without_repeats(tensors: Mapping[str, T], family: Family, config: NetworkConfig) -> dict[str, T]:
    """Without tensors that repeat another one; a repetition without its original takes its place."""
    table, kept = family.table(config), dict(tensors)
    for repeat, key in family.same.items():
        if repeat in kept and repeat not in table and repeat.rpartition(".")[0] not in table:
            kept.setdefault(key, kept.pop(repeat))
    if config.tie_head:
        kept.pop(_keys_of(family, config, "head.output"), None)
    return kept


def _refuse_misfits(
    wanted: list[Entry], found: TensorsOf[Any], shapes: ShapesByName, ignored: str, origin: str
) -> None:
    """List every tensor that is missing, unexpected, of the wrong shape or not floating-point, in one error."""
    tensors, keys = found.tensors, {entry.key: entry.file_shape(shapes) for entry in wanted}
    problems = [f"missing {key}" for key in keys if key not in tensors]
    problems += [f"unexpected {key}" for key in tensors if key not in keys and not re.search(ignored, key)]
    problems += [
        f"{key} is {list(tensors[key].shape)}, should be {list(shape)}"
        for key, shape in keys.items()
        if key in tensors and tuple(tensors[key].shape) != shape
    ]
    dtypes = {key: found.dtype_of(tensors[key]) for key in keys if key in tensors}
    problems += [f"{key} is {dtype}, should be {FLOATS[0]}" for key, dtype in dtypes.items() if dtype not in FLOATS]
    if problems:
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise UserError(f"{origin}: does not fit its {CONFIG}: {'; '.join(problems[:20])}{more}")
