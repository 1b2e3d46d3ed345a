"""Identify the network of a folder whose config.json does not name it: no `model_type`, or an unknown class.

Old versions of `transformers` wrote no `model_type`, and projects save networks under names of their own. The tensors
decide: a family and a head fit if they use all tensors of the network, and the head with the most tensors is chosen.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.errors import UserError
from headwise.families.family import Family
from headwise.families.registry import FAMILIES
from headwise.runtime.checkpoint.layout import CONFIG
from headwise.runtime.checkpoint.shapes import ShapesByName
from headwise.runtime.formats.matching import TensorsOf, match_tensors

FittingConfig = tuple[int, str, dict[str, Any]]  # number of tensors, family, completed config.json


def names_network(values: Mapping[str, Any]) -> bool:
    """Whether a config.json names a family and, if any, a known class; without a class it is the family's first."""
    kind = values.get("model_type")
    if kind is None or kind == "":
        return False
    family = FAMILIES.get(str(kind))
    return family is None or not family.heads or _saved_class(values) in ("", *family.heads)


def complete_config(
    values: Mapping[str, Any],
    found: TensorsOf[Any],
    shapes_of: Callable[[NetworkConfig], ShapesByName],
    folder: Path,
) -> dict[str, Any]:
    """A config.json that is not `names_network`, with the family and the class that the tensors fit; warns if they do.

    Raises:
        UserError: the tensors fit several families.
    """
    fitting = sorted(_candidates(values, found, shapes_of), key=lambda one: one[0])
    best = [one for one in fitting if one[0] == fitting[-1][0]]
    families = sorted({family for _, family, _ in best})
    if {*families} <= {"bert", "electra", "roberta"}:  # RoBERTa has one segment; ELECTRA then computes what BERT does
        chosen = "bert" if values.get("type_vocab_size", 2) > 1 else "roberta"
        best = [one for one in best if one[1] == chosen] or best
    elif len(families) > 1:
        wanted = f'add "model_type": "{families[0]}" to the file, or another of these'
        raise UserError(f"{folder / CONFIG}: has no model_type, and its tensors fit {', '.join(families)}; {wanted}")
    if not best:
        return dict(values)
    _, family, completed = best[0]
    if not values.get("model_type"):
        warnings.warn(f"{folder / CONFIG}: has no model_type; read as {family}, which its tensors fit", stacklevel=2)
    saved, chosen = _saved_class(values), _saved_class(completed)
    if saved and saved != chosen:
        known = f"read as {chosen}, which its tensors fit"
        warnings.warn(f"{folder / CONFIG}: architectures = {saved[:60]} is unknown; {known}", stacklevel=2)
    return completed


def _saved_class(values: Mapping[str, Any]) -> str:
    """The first name in `architectures`; "" without any."""
    names = values.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _candidates(
    values: Mapping[str, Any], found: TensorsOf[Any], shapes_of: Callable[[NetworkConfig], ShapesByName]
) -> Iterator[FittingConfig]:
    """Every family and head that the tensors fit."""
    kind, saved = values.get("model_type"), _saved_class(values)
    of_class = [name for name, family in FAMILIES.items() if saved in family.heads]
    for name, family in FAMILIES.items():
        if (kind and name != kind) or (of_class and name not in of_class):
            continue
        classes = _classes_to_try(family, saved)
        for changed in [{"architectures": [chosen]} for chosen in classes] or [{}]:
            completed = {**values, "model_type": name, **changed}
            try:
                config = family.config_from_hf(completed)
                matched = match_tensors(family, config, found, shapes_of, "")
            except UserError:
                continue
            if matched.config.head == config.head or saved in family.heads:
                yield len(matched.entries), config.family, {**completed, "model_type": kind or config.family}


def _classes_to_try(family: Family, saved: str) -> list[str]:
    """The saved class if it is known; otherwise the first class of each head."""
    if saved in family.heads:
        return [saved]
    return [*{head: chosen for chosen, head in reversed([*family.heads.items()])}.values()]
