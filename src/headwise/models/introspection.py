"""Look into a network that reads one text, picture or sound: what its heads attend to, and which of them
matter.

Methods of several kinds of models (`attend = attend_input`), which have `observed(given, **options)`, an input as the
inspector reads it, and `example(given, target)`, an input with its loss. Not here: pairs of texts (`pair_inspector`).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.inspect.attend import Layers, select_layers
from headwise.inspect.heads import Head, HeadMask, HeadsByLayer, heads_of
from headwise.inspect.importance import importance_over
from headwise.inspect.notebook import AttentionView, Inspection
from headwise.inspect.predictions import trace_of
from headwise.inspect.record import Trace, Walk, WalkRecord
from headwise.inspect.recording import head_counts, record_attention
from headwise.inspect.walk import walk_record
from headwise.models.pruning import write_pruned


def attend_input(
    self: Any, given: Any, layers: Layers | None = None, heads: Sequence[int] | None = None, **options: Any
) -> AttentionView:
    """`Model.attend`."""
    select_layers(head_counts(self.network), layers, heads)  # an error comes before a transcript is made
    return record_attention(self.network, self.observed(given, **options), layers, heads)


def trace_input(self: Any, given: Any, top: int = 10, **options: Any) -> Trace:
    """`Model.trace`."""
    return trace_of(self.network, self.observed(given, **options), top)


def inspect_input(self: Any, given: Any, **options: Any) -> Inspection:
    """`Model.look_inside`; the network reads its input once."""
    observed = self.observed(given, **options)
    return Inspection(record_attention(self.network, observed), trace_of(self.network, observed, 10))


def walk_input(self: Any, given: Any, *, stack: str = "", layer: int = 0, head: int = 0, **options: Any) -> Walk:
    """`Model.walk`."""
    return Walk(walks_of_input(self, given, **options).steps(stack, layer, head))


def walks_of_input(self: Any, given: Any, **options: Any) -> WalkRecord:
    """`Model.walks`."""
    return walk_record(self.network, self.observed(given, **options))


def input_head_importance(self: Any, given: Sequence[Any], targets: Sequence[Any] = ()) -> dict[Head, float]:
    """`Model.head_importance`."""
    if not given or len(targets) not in (0, len(given)):
        raise UserError(f"{len(given)} inputs and {len(targets)} targets; target n must belong to input n")
    pairs = zip(given, targets or [None] * len(given), strict=True)
    return importance_over(self.network, (self.example(one, target) for one, target in pairs))


def mask_model_heads(self: Any, heads: HeadsByLayer) -> AbstractContextManager[object]:
    """`Model.mask_heads`."""
    chosen = heads_of(self.network, heads)
    mask = vars(self).setdefault("head_mask", HeadMask(self.network))
    undo = ExitStack()
    undo.callback(mask.set, mask.set(chosen))
    return undo


def prune_model(self: Any, heads: HeadsByLayer, out: str | Path) -> Path:
    """`Model.prune`."""
    return write_pruned(self, heads_of(self.network, heads), Path(out))
