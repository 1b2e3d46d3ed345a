"""What a translation model does with a source and its target: scores, word links, attention, attribution.

Unlike translating all of it needs torch, so `Translator` gets this from `load` when one of these methods is called.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from headwise.checkpoint.sidecar_files import read_alignment
from headwise.config.settings import RunConfig
from headwise.data.links import GoldLinks, Links
from headwise.decode.translator import TextTranslator, clean_text
from headwise.evaluate.alignment import AlignmentScore
from headwise.evaluate.score import PairScore
from headwise.inspect.alignment import AlignmentHead, align, default_head, rank_heads, supervised_layer, symmetrized
from headwise.inspect.attend import Layers, attend
from headwise.inspect.attribution import attribute
from headwise.inspect.heads import Head, HeadsByLayer
from headwise.inspect.importance import head_importance
from headwise.inspect.notebook import AttentionView, Inspection
from headwise.inspect.record import Attribution, Trace
from headwise.inspect.trace import trace
from headwise.inspect.walk import WalkStep, walk_steps
from headwise.models.introspection import mask_model_heads, prune_model
from headwise.models.scoring import score_texts


class PairInspector:
    """The methods of a translation model that read pairs; documented in `Model`."""

    def __init__(self, model: Any, source_language: str, target_language: str, instruction: str) -> None:
        """`model` is a `Translator`; the other arguments are as of its `translate`."""
        self._model = model
        self._given = source_language, target_language, instruction

    @cached_property
    def _translator(self) -> TextTranslator:
        return self._model.translator_of_pairs(*self._given)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        t = self._translator
        return score_texts(t.model, t.tokenizer, sources, targets, t.batch_tokens)

    def align(
        self, sources: Sequence[str], targets: Sequence[str], head: AlignmentHead | None = None, reverse: Any = None
    ) -> list[Links]:
        sources, targets = [clean_text(text) for text in sources], [clean_text(text) for text in targets]
        t, head = self._translator, head or self.alignment_head
        links = align(t.model, t.tokenizer, sources, targets, head, t.batch_tokens, t.max_len)
        return symmetrized(links, reverse.align(targets, sources)) if reverse else links

    @property
    def alignment_head(self) -> AlignmentHead:
        """The attention that `align` reads: `known_alignment_head`, or else the one that is usually best."""
        return self.known_alignment_head or default_head(self._translator.model)

    @property
    def known_alignment_head(self) -> AlignmentHead | None:
        """The attention that was chosen for the folder, or trained to align; None for neither."""
        config = self._model.config
        if chosen := read_alignment(self._model.path):
            return AlignmentHead(**chosen)
        if not isinstance(config, RunConfig) or not config.train.alignment_weight:
            return None
        layer = supervised_layer(config.train.alignment_layer, config.model.n_decoder_layers)
        return AlignmentHead(layer, 0, "predicts")

    def rank_heads(
        self, sources: Sequence[str], targets: Sequence[str], gold: Sequence[GoldLinks]
    ) -> dict[AlignmentHead, AlignmentScore]:
        sources, targets = [clean_text(text) for text in sources], [clean_text(text) for text in targets]
        t = self._translator
        return rank_heads(t.model, t.tokenizer, sources, targets, gold, t.batch_tokens)

    def attend(
        self,
        src: str,
        tgt: str | None = None,
        layers: Layers | None = None,
        heads: Sequence[int] | None = None,
        prefix: str = "",
        **settings: Any,
    ) -> AttentionView:
        return attend(self._translator, src, tgt, layers, heads, prefix, **settings)

    def attribute(
        self, src: str, tgt: str | None = None, steps: int = 64, prefix: str = "", **settings: Any
    ) -> Attribution:
        return attribute(self._translator, src, tgt, steps, prefix, **settings)

    def trace(self, src: str, tgt: str | None = None, top: int = 10, prefix: str = "", **settings: Any) -> Trace:
        return trace(self._translator, src, tgt, top, prefix, **settings)

    def look_inside(self, src: str, **options: Any) -> Inspection:
        return Inspection(self.attend(src, **options), self.trace(src, **options))

    def walk(
        self, src: str, tgt: str | None = None, stack: str = "encoder", layer: int = 0, head: int = 0, **options: Any
    ) -> list[WalkStep]:
        return walk_steps(self._translator, src, tgt, stack, layer, head, **options)

    def head_importance(self, sources: Sequence[str], targets: Sequence[str]) -> dict[Head, float]:
        t = self._translator
        return head_importance(t.model, t.tokenizer, sources, targets, t.batch_tokens)

    def mask_heads(self, heads: HeadsByLayer) -> AbstractContextManager[object]:
        return mask_model_heads(self._model, heads)

    def prune(self, heads: HeadsByLayer, out: str | Path) -> Path:
        return prune_model(self._model, heads, out)
