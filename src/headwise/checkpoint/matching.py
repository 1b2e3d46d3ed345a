"""Which tensor of a pretrained checkpoint is which of our parameters; everything that does not fit is one `UserError`.

Works on any kind of tensors, so it needs no torch: `published` passes those of torch, `published_network` those of a
file that has not been read yet.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from headwise.checkpoint.compiled import ShapesByName
from headwise.checkpoint.layout import CONFIG
from headwise.errors import UserError, unknown
from headwise.families.family import Family
from headwise.families.keys import Keys
from headwise.families.registry import FAMILIES
from headwise.families.table import Entry, entries
from headwise.network.config import NetworkConfig

FLOATS = ("float32", "float16", "bfloat16", "float64")  # float64 is converted
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


def match_tensors(
    family: Family,
    config: NetworkConfig,
    found: TensorsOf[T],
    shapes_of: Callable[[NetworkConfig], ShapesByName],
    origin: str,
) -> Matched[T]:
    """The tensors of a file matched to our parameters; `shapes_of` gives the shapes of a network's parameters."""
    found = found.renamed(with_todays_names(found.tensors, family))
    config = _as_saved(config, found, family)
    tensors = _without_repeats(found.tensors, family, config)
    shapes = shapes_of(config)
    wanted = entries(family.table(config), config, shapes)
    _refuse_misfits(wanted, found.renamed(tensors), shapes, family.ignored, origin)
    return Matched(config, [(entry, tensors[entry.key]) for entry in wanted])


def with_todays_names(tensors: Mapping[str, T], family: Family) -> dict[str, T]:
    """Keys in the current format: with the prefix of the network, norms with weight and bias."""
    prefix = "" if any(key.startswith(family.prefix) for key in tensors) else family.prefix
    renamed = {prefix + re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key)): key for key in tensors}
    return {new: tensors[old] for new, old in renamed.items()}


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
    return config


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
