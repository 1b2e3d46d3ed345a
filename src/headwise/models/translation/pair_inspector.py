"""Inspection of a translation model on given pairs: scores, word links, attention, predictions.

The compiled library reads the pairs, if it supports the network; otherwise torch does. Attribution, importance and
masking of heads, pruning and the walk always need torch (`torch_translator`).
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from headwise.config.settings import RunConfig
from headwise.errors import UserError
from headwise.evaluate.alignment import AlignmentScore
from headwise.evaluate.score import SCORED_TOGETHER, PairScore
from headwise.importing import torch_needed
from headwise.runtime.checkpoint.sidecar_files import read_alignment
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.request import non_finite_error
from headwise.runtime.search.translator import TextTranslator, clean_text
from headwise.text.files.links import GoldLinks, Links
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.view.alignment import AlignmentHead, align, default_head, rank_heads, supervised_layer, symmetrized
from headwise.view.attend import Layers, attend
from headwise.view.notebook import AttentionView, Inspection
from headwise.view.reader import HeadCounts, Ids, LibraryReader, PairReader
from headwise.view.record import Trace
from headwise.view.trace import trace


class PairInspector:
    """Reads pairs. Methods with the names of `Translator`'s are described there."""

    def __init__(self, model: Any, translator: TextTranslator) -> None:
        """`model` is a `Translator`, `translator` its translator between two languages."""
        self._model, self._translator = model, translator

    @cached_property
    def _reader(self) -> PairReader:
        engine = self._translator.engines("float32")
        return LibraryReader(engine) if isinstance(engine, CompiledNetwork) else self.torch_reader()

    def torch_reader(self) -> PairReader:
        """The torch module as a reader of pairs; `UserError` if PyTorch is not installed."""
        with torch_needed():
            from headwise.pytorch.inspect.reader import TorchReader
        return TorchReader(self._translator.model, self._translator.tokenizer.pad_id)

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

    def trace(self, src: str, tgt: str | None = None, top: int = 10, prefix: str = "", **settings: Any) -> Trace:
        return trace(self._translator, self._reader, src, tgt, top, prefix, **settings)

    def look_inside(self, src: str, **options: Any) -> Inspection:
        return Inspection(self.attend(src, **options), self.trace(src, **options))


def score_texts(
    reader: PairReader,
    tokenizer: PairTokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    batch_tokens: int = 4096,
) -> list[PairScore]:
    """`score_pairs` for text; line n of `targets` is scored as a translation of line n of `sources`."""
    if len(sources) != len(targets):
        raise UserError(f"{len(sources)} source but {len(targets)} target lines; line n belongs to line n")
    t = tokenizer
    scores: list[PairScore] = []
    for start in range(0, len(sources), SCORED_TOGETHER):
        sides = (side[start : start + SCORED_TOGETHER] for side in (sources, targets))
        pairs = list(zip(t.source.encode_batch(next(sides)), t.encode_batch(next(sides)), strict=True))
        scores += score_pairs(reader, pairs, t.bos_id, t.eos_id, batch_tokens, t.source.eos_id)
    return scores


def score_pairs(
    reader: PairReader,
    pairs: Sequence[tuple[Ids, Ids]],
    bos_id: int = 1,
    eos_id: int = 2,
    batch_tokens: int = 4096,
    src_end_id: int | None = None,
) -> list[PairScore]:
    """Score pairs of (source, target) ids without start and end tokens, in their order.

    Args:
        batch_tokens: tokens in a batch of torch, rows times the longer side; a longer pair is a batch of its own.
            Batches change no score beyond rounding.
        src_end_id: the end token of sources; None = `eos_id`.

    Raises:
        UserError: the model is damaged: it gives NaN for a probability.
    """
    end = eos_id if src_end_id is None else src_end_id
    whole = [([*src, end], [bos_id, *tgt, eos_id]) for src, tgt in pairs]
    scores = [PairScore(values) for values in reader.log_probs(whole, batch_tokens)]
    if any(math.isnan(value) for score in scores for value in score.token_log_probs):
        raise non_finite_error()
    return scores
