"""What a translation model does with a source and its target: scores, word links, attention, predictions.

The compiled library reads the pairs, if it supports the network; otherwise torch does. Attribution, importance and
masking of heads, pruning and the walk always need torch (`torch_inspector`).
"""

from collections.abc import Callable, Sequence
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
from headwise.inspect.notebook import AttentionView, Inspection
from headwise.inspect.reader import HeadCounts, LibraryReader, PairReader
from headwise.inspect.record import Attribution, Trace, Walk, WalkRecord
from headwise.inspect.trace import trace
from headwise.models.scoring import score_texts
from headwise.native.network import CompiledNetwork


class PairInspector:
    """The methods of a translation model that read pairs; documented in `Model`."""

    def __init__(
        self,
        model: Any,
        source_language: str,
        target_language: str,
        instruction: str,
        torch_inspector: Callable[..., Any],
    ) -> None:
        """
        Args:
            model: a `Translator`.
            source_language, target_language, instruction: as of its `translate`.
            torch_inspector: makes the `TorchInspector` of a model, for networks and methods that need torch.
        """
        self._model, self._torch_inspector = model, torch_inspector
        self._given = source_language, target_language, instruction

    @cached_property
    def _translator(self) -> TextTranslator:
        return self._model.translator_of_pairs(*self._given)

    @cached_property
    def _reader(self) -> PairReader:
        engine = self._translator.engines("float32")
        return LibraryReader(engine) if isinstance(engine, CompiledNetwork) else self._with_torch.reader()

    @cached_property
    def _with_torch(self) -> Any:
        return self._torch_inspector(self._model, self._translator)

    @property
    def heads(self) -> HeadCounts:
        """The number of heads of each layer: "encoder", "decoder" and "cross" attention."""
        return self._reader.heads

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        t = self._translator
        return score_texts(self._reader, t.tokenizer, sources, targets, t.batch_tokens)

    def align(
        self, sources: Sequence[str], targets: Sequence[str], head: AlignmentHead | None = None, reverse: Any = None
    ) -> list[Links]:
        sources, targets = [clean_text(text) for text in sources], [clean_text(text) for text in targets]
        t, head = self._translator, head or self.alignment_head
        links = align(self._reader, t.tokenizer, sources, targets, head, t.batch_tokens, t.max_len)
        return symmetrized(links, reverse.align(targets, sources)) if reverse else links

    @property
    def alignment_head(self) -> AlignmentHead:
        """The attention that `align` reads: `known_alignment_head`, or else the one that is usually best."""
        return self.known_alignment_head or default_head(self._reader.heads["cross"])

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
        return rank_heads(self._reader, t.tokenizer, sources, targets, gold, t.batch_tokens)

    def attend(
        self,
        src: str,
        tgt: str | None = None,
        layers: Layers | None = None,
        heads: Sequence[int] | None = None,
        prefix: str = "",
        **settings: Any,
    ) -> AttentionView:
        return attend(self._translator, self._reader, src, tgt, layers, heads, prefix, **settings)

    def attribute(self, *given: Any, **options: Any) -> Attribution:
        return self._with_torch.attribute(*given, **options)

    def trace(self, src: str, tgt: str | None = None, top: int = 10, prefix: str = "", **settings: Any) -> Trace:
        return trace(self._translator, self._reader, src, tgt, top, prefix, **settings)

    def look_inside(self, src: str, **options: Any) -> Inspection:
        return Inspection(self.attend(src, **options), self.trace(src, **options))

    def walk(
        self, src: str, tgt: str | None = None, stack: str = "", layer: int = 0, head: int = 0, **options: Any
    ) -> Walk:
        return Walk(self.walks(src, tgt, **options).steps(stack, layer, head))

    def walks(self, src: str, tgt: str | None = None, **options: Any) -> WalkRecord:
        return self._with_torch.walks(src, tgt, **options)

    def head_importance(self, sources: Sequence[str], targets: Sequence[str]) -> dict[Any, float]:
        return self._with_torch.head_importance(sources, targets)

    def mask_heads(self, heads: Any) -> AbstractContextManager[object]:
        return self._with_torch.mask_heads(heads)

    def prune(self, heads: Any, out: str | Path) -> Path:
        return self._with_torch.prune(heads, out)
