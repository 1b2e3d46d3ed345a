"""A smaller model directory: the same Transformer without some of its attention heads.

Heads that matter little for the loss (`inspect/importance.py`) are left out, weights and all. What remains translates
as the whole model does with these heads masked; training can go on from it (`sightline train --init`). The layout of
published models has no place for layers with fewer heads: there they are silent, their part of W^O is zero. Files in,
files out: what a head is and which ones matter is `sightline.inspect`'s affair.
"""

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.checkpoint.beside import SHORTLIST, write_alignment
from sightline.checkpoint.trained import CONFIG, write_settings, write_weights
from sightline.checkpoint.tuned import SameLayout
from sightline.errors import UserError
from sightline.inspect.alignment import AlignmentHead
from sightline.inspect.heads import Head, all_heads, heads_left, listed, parameters_without
from sightline.model_card import model_card
from sightline.network.parameters import parameters_of

if TYPE_CHECKING:
    from sightline.api import TrainedTranslator
    from sightline.generation.models import RewritingModel


def parse_count(text: str, n_heads: int) -> int:
    """How many of `n_heads` a user means: "30%", or a number of heads.

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


SILENT = (  # what is said of a published model
    "their weights in W^O are zero, for this layout has no place for fewer heads: neither size nor speed has changed, "
    "and training further would bring them back"
)


def write_silenced(model: "RewritingModel", removed: Collection[Head], out: Path) -> Path:
    """`write_pruned` for a published model, in the layout it came in: the heads are there and add nothing."""
    _refuse(model, removed, out)
    layout = SameLayout(model)
    with model.mask_heads(listed(removed)):
        layout.write_companions(out)
        layout.write_weights(out, parameters_of(model.network), _card(model, removed))
    if model.known_alignment_head:
        gone = Head("cross", model.known_alignment_head.layer, model.known_alignment_head.head or 0) in removed
        head = replace(model.known_alignment_head, head=None) if gone else model.known_alignment_head
        write_alignment(out, head.as_json())
    if (model.path / SHORTLIST).is_file():
        shutil.copyfile(model.path / SHORTLIST, out / SHORTLIST)
    return out


def _card(model: "RewritingModel", removed: Collection[Head]) -> str:
    name, heads = model.path.absolute().name, dict(listed(removed))
    return f"# `{name}` without some of its heads\n\nMade with Sightline: {len(removed)} heads, {heads}; {SILENT}.\n"


def write_pruned(model: "TrainedTranslator", removed: Collection[Head], out: Path) -> Path:
    """Write a model without the heads `removed` into a folder of its own, and return that.

    Args:
        model: the whole model, as `sightline.load` gives it; no head is masked.
        removed: where an attention would lose all of its heads, it must keep one.
        out: a folder that is no model directory yet.

    Raises:
        UserError: `out` is taken, the network has no heads, or an attention would lose all of its own.
    """
    left, config = _refuse(model, removed, out), model.config
    shape = replace(
        config.model, encoder_heads=left["encoder"], decoder_heads=left["decoder"], cross_heads=left["cross"]
    )
    smaller = replace(config, model=shape)
    pruned = f"{len(removed)} of {len(all_heads(model.network))} heads pruned from {model.path.absolute().name}"
    about = {**model.about, "pruned": pruned}
    parameters = parameters_without(model.network, removed)
    count = sum(values.numel() for values in parameters.values())
    write_settings(out, smaller, model.tokenizer, about)
    write_weights(out, parameters, model_card(smaller, about, count, {}, pruned, ""))
    write_alignment(out, _alignment_head(model, removed).as_json())
    if (model.path / SHORTLIST).is_file():
        shutil.copyfile(model.path / SHORTLIST, out / SHORTLIST)
    return out


def _refuse(model: "TrainedTranslator | RewritingModel", removed: Collection[Head], out: Path) -> Any:
    """How many heads each layer keeps, by part; `UserError` as of `write_pruned`."""
    if (out / CONFIG).exists():
        raise UserError(f"-o {out}: holds a model already; name another folder")
    left = heads_left(model.network, removed)
    if not all(all(counts) for counts in left.values()):
        raise UserError("every attention must keep a head: remove fewer")
    return left


def _alignment_head(model: "TrainedTranslator", removed: Collection[Head]) -> AlignmentHead:
    """Where word links are read from: the same head under its new number, the mean of its layer if it is gone."""
    chosen = model.alignment_head
    gone = {head.number for head in removed if head.place == ("cross", chosen.layer)}
    if chosen.head is None or chosen.head in gone:
        return replace(chosen, head=None)
    return replace(chosen, head=chosen.head - sum(number < chosen.head for number in gone))
