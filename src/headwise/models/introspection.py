"""Methods that look inside a network, for several kinds of models.

They need torch, which `torch()` imports: its result computes. Nothing here needs torch. See `translator` for pairs of
texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.importing import torch_needed
from headwise.models.model import Model

if TYPE_CHECKING:  # types of results: nothing of this is needed to load a model
    from headwise.pytorch.inspect.heads import Head, HeadsByLayer
    from headwise.pytorch.models.model import ModelInTorch
    from headwise.view.notebook import AttentionView, Inspection
    from headwise.view.record import Trace, Walk, WalkRecord


class PrunableModel(Model):
    """A model with attention heads that can be silenced and removed."""

    def torch(self) -> ModelInTorch:
        """The model in torch; `UserError` if PyTorch is not installed."""
        with torch_needed():
            from headwise.pytorch.models.model import ModelInTorch
        return ModelInTorch(self)

    def mask_heads(self, heads: HeadsByLayer) -> AbstractContextManager[object]:
        """Silence these attention heads of a Transformer and no others, until the next call; `{}` silences none.

        They contribute nothing to their layer, whatever the model does next. In a `with` statement the heads that were
        silenced before are restored at its end.

        Args:
            heads: numbers of heads by layer and part, all from 0: `{"encoder": {0: [1, 3]}, "decoder": {}, "cross":
                {2: [0]}}`.

        Raises:
            UserError: no such head, or another architecture.

        >>> with model.mask_heads({"cross": {2: [0]}}):  # doctest: +SKIP
        ...     print(model.translate(["A dog runs."])[0].text)
        """
        return self.torch().mask_heads(heads)

    def prune(self, heads: HeadsByLayer, out: str | Path) -> Path:
        """Write the model without these heads, named as for `mask_heads`, to a new folder; returns that.

        Raises:
            UserError: no such head, an attention would lose all its heads, or the folder already holds a model.
        """
        return self.torch().prune(heads, out)


class ModelWithLoss(PrunableModel):
    """A model whose loss shows how much its heads matter."""

    def head_importance(self, given: Sequence[Any], targets: Sequence[Any] = ()) -> dict[Head, float]:
        """The sensitivity of the loss on these inputs to each head (`headwise.pytorch.inspect.importance`).

        Args:
            given: texts, or files of pictures or sounds.
            targets: labels, by name or number; transcripts; captions. Not needed for language models and masked
                language models. Transcripts and captions are by default the model's own.

        Raises:
            UserError: no inputs, or different numbers of inputs and targets.
        """
        return self.torch().head_importance(given, targets)


class InspectableModel(PrunableModel):
    """A model whose attention and predictions can be looked at."""

    def attend(self, given: Any, *rest: Any, **options: Any) -> AttentionView:
        """Attention weights for one input: a text, or the file of a picture or a sound (`headwise.view.attend`).

        Args:
            given: the input.
            **options: `layers`, for all stacks or by stack (`{"encoder": [-1]}`), and `heads` of these layers;
                `target`, the transcript or the caption, by default the model's own; `n_times`, into how many stretches
                a sound is divided (300; 0 = one for each encoder position); and what `transcribe` or `caption` takes.

        Raises:
            UserError: the input cannot be read, is blank or too long, or there is no such layer or head.
        """
        return self.torch().attend(given, *rest, **options)

    def trace(self, given: Any, top: int = 10, **options: Any) -> Trace:
        """The `top` predictions at each position after every layer.

        A decoder predicts the next token, an encoder the token at a position (masked or not) or the label of the whole;
        without such a head there are no positions. Options as for `attend`; see `headwise.view.trace`.
        """
        return self.torch().trace(given, top, **options)

    def look_inside(self, given: Any, **options: Any) -> Inspection:
        """`attend` and `trace`; a notebook shows the whole page."""
        return self.torch().look_inside(given, **options)


class WalkableModel(InspectableModel):
    """A Transformer of texts, whose steps of figure 1 can be followed."""

    def walk(self, given: Any, *, stack: str = "", layer: int = 0, head: int = 0, **options: Any) -> Walk:
        """The values of every step of figure 1 for one layer and head, first to last (`headwise.pytorch.inspect.walk`).

        Args:
            given: a text.
            stack: "encoder" or "decoder"; "" = the first that the model has.
            layer: its number, from 0.
            head: its number, from 0.
            **options: as for `attend`.

        Raises:
            UserError: as for `attend`; the network is not a Transformer of texts; or there is no such layer or head.
        """
        return self.torch().walk(given, stack=stack, layer=layer, head=head, **options)

    def walks(self, given: Any, **options: Any) -> WalkRecord:
        """The walks through all layers and heads for one input, which the model reads once; arguments as for `walk`."""
        return self.torch().walks(given, **options)
