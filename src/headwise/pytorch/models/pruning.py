"""Write a model without some of its attention heads.

The weights of unimportant heads (`pytorch/inspect/importance.py`) are removed. The result computes the same as the
whole model with these heads masked, and can be fine-tuned (`headwise train --init`). Pretrained models, and models with
grouped queries, cannot have layers with fewer heads: there the part of W^O of these heads is zero. See `headwise.view`
for heads and their importance.
"""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from headwise.config.settings import RunConfig
from headwise.core.build import parameters_of
from headwise.errors import UserError
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.inspect.heads import Head, all_heads, heads_by_layer, heads_left, parameters_without
from headwise.runtime.checkpoint.model_card import model_card
from headwise.runtime.checkpoint.sidecar_files import SHORTLIST, write_alignment
from headwise.runtime.checkpoint.trained import CONFIG, write_file, write_settings, write_weights
from headwise.view.alignment import AlignmentHead


def parse_count(text: str, n_heads: int) -> int:
    """The number of heads to remove of `n_heads`, from "30%" or a number.

    >>> parse_count("30%", 48), parse_count("5", 48)
    (14, 5)
    """
    number = text.removesuffix("%")
    try:
        count = round(n_heads * float(number) / 100) if text.endswith("%") else int(number)
    except (ValueError, OverflowError):
        raise UserError(f"--heads {text}: write a share of all heads, such as 30%, or a number of heads") from None
    if not 0 < count < n_heads:
        raise UserError(f"--heads {text}: that is {count} of {n_heads} heads; remove at least one and leave one")
    return count


ZEROED = (  # the note for a model that keeps its heads
    "their weights in W^O are zero, because this layout cannot have fewer heads: size and speed are unchanged, "
    "and fine-tuning would restore them"
)


def heads_can_go(config: Any) -> bool:
    """Whether layers of a model with this configuration can have different numbers of heads."""
    return isinstance(config, RunConfig) and not config.model.n_kv_heads


def write_pruned(model: Any, removed: Collection[Head], out: Path) -> Path:
    """Write a model without the heads `removed` to a new folder; returns that.

    Args:
        model: the whole model, as `headwise.load` returns it, without masked heads.
        removed: every attention must keep a head.
        out: a new folder.

    Raises:
        UserError: `out` holds a model, the network has no heads, or an attention would lose all of them.
    """
    left = _checked(model, removed, out)
    if heads_can_go(model.config):
        parameters = parameters_without(model.network, removed)
        heads = {f"{part}_heads": counts for part, counts in left.items()}
        config = replace(model.config, model=replace(model.config.model, **heads))
    else:
        with model.mask_heads(heads_by_layer(removed)):
            parameters = {name: value.clone() for name, value in parameters_of(model.network).items()}
        config = model.config
    _write(model, config, parameters, removed, out)
    if (model.path / SHORTLIST).is_file():
        write_file(out / SHORTLIST, lambda draft: shutil.copyfile(model.path / SHORTLIST, draft))
    if hasattr(model, "align"):
        write_alignment(out, _alignment_head(model, removed).as_json())
    return out


def _checked(model: Any, removed: Collection[Head], out: Path) -> dict[str, tuple[int, ...]]:
    """How many heads each layer keeps, by part; `UserError` as for `write_pruned`."""
    if (out / CONFIG).exists():
        raise UserError(f"-o {out}: holds a model already; name another folder")
    left = heads_left(model.network, removed)
    if not all(all(counts) for counts in left.values()):
        raise UserError("every attention must keep a head: remove fewer")
    return left


def _write(model: Any, config: Any, parameters: Mapping[str, Tensor], removed: Collection[Head], out: Path) -> None:
    """In the layout of the model."""
    name = model.path.absolute().name
    if not isinstance(config, RunConfig):
        note = f"Made with Headwise: {len(removed)} heads, {dict(heads_by_layer(removed))}; {ZEROED}."
        layout = SameLayout(model)
        layout.write_companions(out)
        return layout.write_pruned(out, parameters, f"# `{name}` without some of its heads\n\n{note}\n")
    pruned = f"{len(removed)} of {len(all_heads(model.network))} heads pruned from {name}"
    about, count = {**model.about, "pruned": pruned}, sum(values.numel() for values in parameters.values())
    write_settings(out, config, model.tokenizer, about)
    write_weights(out, parameters, model_card(config, about, count, {}, pruned, ""))


def _alignment_head(model: Any, removed: Collection[Head]) -> AlignmentHead:
    """The alignment head: the same one under its new number, or the mean of its layer if it was removed."""
    chosen = model.alignment_head
    gone = {head.number for head in removed if head.layer_name == ("cross", chosen.layer)}
    if chosen.head is None or chosen.head in gone:
        return replace(chosen, head=None)
    before = sum(number < chosen.head for number in gone) if heads_can_go(model.config) else 0
    return replace(chosen, head=chosen.head - before)
