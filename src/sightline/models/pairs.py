"""Methods of translation models that read a source and its target."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from sightline.models.model import Model


def inspected(name: str) -> Callable[..., Any]:
    """The method of `PairInspector` with this name, which needs torch, unlike translating."""

    @wraps(getattr(Model, name))
    def method(self: Any, *given: Any, **options: Any) -> Any:
        return getattr(self.inspector(), name)(*given, **options)

    return method


class PairVerbs:
    """Score, align, and look inside; `_translator` is an `inspect.pair.PairTranslator`."""

    reads = "pairs"
    _translator: Any
    score, align, rank_heads, attribute, walk = map(inspected, ("score", "align", "rank_heads", "attribute", "walk"))
    attend, trace, look_inside = map(inspected, ("attend", "trace", "look_inside"))
    mask_heads, prune, head_importance = map(inspected, ("mask_heads", "prune", "head_importance"))

    def inspector(self) -> Any:
        """A `PairInspector` of this model."""
        from sightline.models.pair_inspector import PairInspector

        return PairInspector(self)

    @property
    def alignment_head(self) -> Any:
        """The attention that `align` reads."""
        return self.inspector().alignment_head

    @property
    def known_alignment_head(self) -> Any:
        """The same, if it was chosen for this folder or trained to align."""
        return self.inspector().known_alignment_head

    @property
    def sides(self) -> Any:
        """Between texts and ids, of what is read and of what is written: a `data.side.Side`."""
        return self._translator.tokenizer

    @property
    def n_pieces(self) -> int:
        """Of the vocabulary."""
        return self.sides.vocab_size
