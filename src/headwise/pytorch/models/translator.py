"""A translation model in torch: attribution, heads, the walk through the network."""

from collections.abc import Sequence
from typing import Any

from headwise.pytorch.inspect.attribution import attribute
from headwise.pytorch.inspect.heads import Head
from headwise.pytorch.inspect.importance import head_importance
from headwise.pytorch.inspect.walk import walk_pair
from headwise.pytorch.models.model import ModelInTorch
from headwise.runtime.search.translator import TextTranslator
from headwise.view.record import Attribution, Walk, WalkRecord


class TranslatorInTorch(ModelInTorch):
    """A `Translator` in torch, for one pair of languages."""

    def __init__(self, model: Any, translator: TextTranslator) -> None:
        """`translator` is that of the model for these languages."""
        super().__init__(model)
        self.translator = translator

    def attribute(self, src: str, tgt: str | None, steps: int, prefix: str, **settings: Any) -> Attribution:
        return attribute(self.translator, src, tgt, steps, prefix, **settings)

    def walk(self, src: str, tgt: str | None, stack: str, layer: int, head: int, **options: Any) -> Walk:  # pyright: ignore[reportIncompatibleMethodOverride] of pairs
        return Walk(self.walks(src, tgt, **options).steps(stack, layer, head))

    def walks(self, src: str, tgt: str | None, **options: Any) -> WalkRecord:  # pyright: ignore[reportIncompatibleMethodOverride] of pairs
        return walk_pair(self.translator, src, tgt, **options)

    def head_importance(self, sources: Sequence[str], targets: Sequence[str]) -> dict[Head, float]:  # pyright: ignore[reportIncompatibleMethodOverride] of pairs
        t = self.translator
        return head_importance(t.model, t.tokenizer, sources, targets, t.batch_tokens)
