"""A model that reads one text, picture or sound, in torch: what its heads attend to, and which of them matter.

Each kind of model has a class below `ModelInTorch`, which `torch()` of the model returns. See `torch_translator` for
pairs of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.pytorch.inspect.heads import Head, HeadMask, HeadsByLayer, heads_of
from headwise.pytorch.inspect.importance import Example, importance_over
from headwise.pytorch.inspect.predictions import trace_of
from headwise.pytorch.inspect.recording import head_counts, record_attention
from headwise.pytorch.inspect.walk import walk_record
from headwise.pytorch.models.pruning import write_pruned
from headwise.view.attend import Layers, select_layers
from headwise.view.notebook import AttentionView, Inspection
from headwise.view.record import Trace, Walk, WalkRecord


class ModelInTorch:
    """A model and its torch network. Methods with the names of the model's are described there."""

    observed: Callable[..., Any]
    """Makes an input as the inspector reads it, such as an `pytorch.inspect.inputs.EncodedInput`."""

    def __init__(self, model: Any) -> None:
        """`model` is a `Model`."""
        self.model = model

    @property
    def network(self) -> Any:
        """The torch module; made when it is first used."""
        return self.model.network

    def example(self, given: Any, target: Any) -> Example:
        """An input with its loss."""
        raise NotImplementedError

    def attend(
        self, given: Any, layers: Layers | None = None, heads: Sequence[int] | None = None, **options: Any
    ) -> AttentionView:
        select_layers(head_counts(self.network), layers, heads)  # an error comes before a transcript is made
        return record_attention(self.network, self.observed(given, **options), layers, heads)

    def trace(self, given: Any, top: int = 10, **options: Any) -> Trace:
        return trace_of(self.network, self.observed(given, **options), top)

    def look_inside(self, given: Any, **options: Any) -> Inspection:
        observed = self.observed(given, **options)  # the network reads its input once
        return Inspection(record_attention(self.network, observed), trace_of(self.network, observed, 10))

    def walk(self, given: Any, *, stack: str = "", layer: int = 0, head: int = 0, **options: Any) -> Walk:
        return Walk(self.walks(given, **options).steps(stack, layer, head))

    def walks(self, given: Any, **options: Any) -> WalkRecord:
        return walk_record(self.network, self.observed(given, **options))

    def head_importance(self, given: Sequence[Any], targets: Sequence[Any] = ()) -> dict[Head, float]:
        if not given or len(targets) not in (0, len(given)):
            raise UserError(f"{len(given)} inputs and {len(targets)} targets; target n must belong to input n")
        pairs = zip(given, targets or [None] * len(given), strict=True)
        return importance_over(self.network, (self.example(one, target) for one, target in pairs))

    def mask_heads(self, heads: HeadsByLayer) -> AbstractContextManager[object]:
        chosen = heads_of(self.network, heads)
        mask = vars(self.model).setdefault("head_mask", HeadMask(self.network))
        undo = ExitStack()
        undo.callback(mask.set, mask.set(chosen))
        return undo

    def prune(self, heads: HeadsByLayer, out: str | Path) -> Path:
        return write_pruned(self.model, heads_of(self.network, heads), Path(out))
