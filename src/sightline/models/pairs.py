"""What a model that reads and writes is asked about a pair of texts: how probable, which words, what it looked at.

The same for a translator of ours and for a published encoder-decoder: both have a translator, which knows the network,
the tokenizer and the settings. Not here: translating (`verbs`, `models.kinds`), and how it is all done, which is
imported where it is asked for.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.decode.translator import clean_text

if TYPE_CHECKING:
    from sightline.data.links import GoldLinks, Links
    from sightline.evaluate.alignment import AlignmentScore
    from sightline.evaluate.score import PairScore
    from sightline.inspect.alignment import AlignmentHead
    from sightline.inspect.attend import Layers
    from sightline.inspect.heads import Head, HeadsByLayer
    from sightline.inspect.notebook import Inspection
    from sightline.inspect.record import AttentionRecord, Attribution, Trace
    from sightline.inspect.walk import WalkStep


class HeadVerbs:
    """Silence heads of the network, or leave them out."""

    network: Any
    reads: str  # what `head_importance` takes: "pairs", "text"; files: "picture", "sound", "labelled", "series"

    def mask_heads(self, heads: "HeadsByLayer") -> AbstractContextManager[object]:
        from sightline.models.introspection import mask_heads

        return mask_heads(self, heads)

    def prune(self, heads: "HeadsByLayer", out: str | Path) -> Path:
        from sightline.models.introspection import prune

        return prune(self, heads, out)


class PairVerbs(HeadVerbs):
    """Score, align, and look inside; `_translator` is an `inspect.pair.Translating`."""

    path: Path
    config: Any
    reads = "pairs"
    _translator: Any

    @property
    def sides(self) -> Any:
        """Between texts and ids, of what is read and of what is written: a `data.side.Side`."""
        return self._translator.tokenizer

    @property
    def n_pieces(self) -> int:
        """Of the vocabulary."""
        return self.sides.vocab_size

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> "list[PairScore]":
        """How probable the model finds each target as the translation of its source (natural logarithms)."""
        from sightline.models.scoring import score_texts

        t = self._translator
        return score_texts(t.model, t.tokenizer, sources, targets, t.batch_tokens)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        head: "AlignmentHead | None" = None,
        reverse: "PairVerbs | None" = None,
    ) -> "list[Links]":
        """The links (source word, target word) of each pair, counted from 0, as the model's attention has them.

        Args:
            sources: texts; words are what blanks separate.
            targets: their translations, the model's own or anybody's.
            head: the attention to read them from; None: `alignment_head`.
            reverse: a model of the other direction, whose links are joined with these (`grow_diagonal`).

        Raises:
            UserError: no attention over the source, no such head, different numbers of lines, a pair too long.
        """
        from sightline.inspect.alignment import align, joined

        sources, targets = [clean_text(text) for text in sources], [clean_text(text) for text in targets]
        t, head = self._translator, head or self.alignment_head
        links = align(t.model, t.tokenizer, sources, targets, head, t.batch_tokens, t.max_len)
        return joined(links, reverse.align(targets, sources)) if reverse else links

    @property
    def alignment_head(self) -> "AlignmentHead":
        """The attention that `align` reads: `known_alignment_head`, else what is usually the best."""
        from sightline.inspect.alignment import usual_head

        return self.known_alignment_head or usual_head(self._translator.model)

    @property
    def known_alignment_head(self) -> "AlignmentHead | None":
        """The attention that was chosen in the model's folder; None where none was."""
        from sightline.checkpoint.beside import read_alignment
        from sightline.inspect.alignment import AlignmentHead

        chosen = read_alignment(self.path)
        return AlignmentHead(**chosen) if chosen else None

    def rank_heads(
        self, sources: Sequence[str], targets: Sequence[str], gold: "Sequence[GoldLinks]"
    ) -> "dict[AlignmentHead, AlignmentScore]":
        """Every attention over the source with its alignment error rate on these pairs, the best first."""
        from sightline.inspect.alignment import rank_heads

        sources, targets = [clean_text(text) for text in sources], [clean_text(text) for text in targets]
        t = self._translator
        return rank_heads(t.model, t.tokenizer, sources, targets, gold, t.batch_tokens)

    def head_importance(self, sources: Sequence[str], targets: Sequence[str]) -> "dict[Head, float]":
        """How much the loss of these translations would change with each head; see `sightline.inspect.importance`."""
        from sightline.inspect.importance import head_importance

        t = self._translator
        return head_importance(t.model, t.tokenizer, sources, targets, t.batch_tokens)

    def attend(
        self,
        src: str,
        tgt: str | None = None,
        layers: "Layers | None" = None,
        heads: Sequence[int] | None = None,
        prefix: str = "",
        **overrides: Any,
    ) -> "AttentionRecord":
        """Who looks at what in a source and its translation, which is made if none is given.

        `layers` is for all three kinds of attention, or says for each of them: `{"cross": [-1]}`. Other arguments as
        `translate` takes them; see `sightline.inspect.attend`.
        """
        from sightline.inspect.attend import attend

        return attend(self._translator, src, tgt, layers, heads, prefix, **overrides)

    def attribute(
        self, src: str, tgt: str | None = None, steps: int = 64, prefix: str = "", **overrides: Any
    ) -> "Attribution":
        """How much each source word raised the probability of each target word; see `sightline.inspect.attribution`."""
        from sightline.inspect.attribution import attribute

        return attribute(self._translator, src, tgt, steps, prefix, **overrides)

    def trace(self, src: str, tgt: str | None = None, top: int = 10, prefix: str = "", **overrides: Any) -> "Trace":
        """How a translation came about, position by position, beam included; see `sightline.inspect.trace`."""
        from sightline.inspect.trace import trace

        return trace(self._translator, src, tgt, top, prefix, **overrides)

    def look_inside(self, src: str, **options: Any) -> "Inspection":
        """`attend` and `trace`; a notebook shows the whole page."""
        from sightline.inspect.notebook import Inspection

        return Inspection(self.attend(src, **options), self.trace(src, **options))

    def walk(
        self, src: str, tgt: str | None = None, stack: str = "encoder", layer: int = 0, head: int = 0, **options: Any
    ) -> "list[WalkStep]":
        """The numbers at each stop of a walk through a Transformer; see `sightline.inspect.walk`."""
        from sightline.inspect.walk import walk

        return walk(self._translator, src, tgt, stack, layer, head, **options)
