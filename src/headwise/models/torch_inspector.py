"""The methods of a translation model that need its torch network: attribution, heads, the walk through it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from headwise.decode.translator import TextTranslator
from headwise.inspect.attribution import attribute
from headwise.inspect.heads import Head, HeadsByLayer
from headwise.inspect.importance import head_importance
from headwise.inspect.record import Attribution, WalkRecord
from headwise.inspect.torch_reader import TorchReader
from headwise.inspect.walk import walk_pair
from headwise.models.introspection import mask_model_heads, prune_model


class TorchInspector:
    """Part of `PairInspector`; the methods are documented in `Model`."""

    def __init__(self, model: Any, translator: TextTranslator) -> None:
        """`model` is a `Translator`, `translator` its translator between two languages."""
        self._model, self._translator = model, translator

    def reader(self) -> TorchReader:
        """Its network as a reader of pairs."""
        return TorchReader(self._translator.model, self._translator.tokenizer.pad_id)

    def attribute(
        self, src: str, tgt: str | None = None, steps: int = 64, prefix: str = "", **settings: Any
    ) -> Attribution:
        return attribute(self._translator, src, tgt, steps, prefix, **settings)

    def walks(self, src: str, tgt: str | None = None, **options: Any) -> WalkRecord:
        return walk_pair(self._translator, src, tgt, **options)

    def head_importance(self, sources: Sequence[str], targets: Sequence[str]) -> dict[Head, float]:
        t = self._translator
        return head_importance(t.model, t.tokenizer, sources, targets, t.batch_tokens)

    def mask_heads(self, heads: HeadsByLayer) -> AbstractContextManager[object]:
        return mask_model_heads(self._model, heads)

    def prune(self, heads: HeadsByLayer, out: str | Path) -> Path:
        return prune_model(self._model, heads, out)
