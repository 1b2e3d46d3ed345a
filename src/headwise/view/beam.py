"""Beam search as a tree: every continuation that the search ranked, and its fate.

The search is the ordinary one with an observer, so its result is that of `translate`. See `core/search.py`
for the search and `trace` for the predictions at each position.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from headwise.contract import Continuation, Hypothesis, SpecialIds, penalty_of
from headwise.runtime.search.request import search_options
from headwise.runtime.search.translator import TextTranslator
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.view.pair import output_ids, with_forced
from headwise.view.record import BeamNode


def search_with_tree(
    translator: TextTranslator, source: list[int], prefix: list[int], config: Any
) -> tuple[Hypothesis, list[BeamNode]]:
    """The translation of a source, and the tree of all continuations that the search ranked.

    Greedy search and sampling rank nothing: their tree is a single path.
    """
    if config.sample or config.beam_size == 1:
        hypothesis = with_forced(translator, translator.search([[source]], prefix, config)[0][0])
        return hypothesis, _only_path(translator, hypothesis, config)
    tree = BeamTree(translator.tokenizer, config)
    hypothesis = with_forced(translator, translator.search_with_callback(source, prefix, config, tree.grow))
    tree.choose(output_ids(hypothesis, translator.tokenizer.eos_id))
    return hypothesis, tree.nodes


class BeamTree:
    """The tree of the hypotheses of one sentence, which grows step by step."""

    def __init__(self, tokenizer: PairTokenizer, config: Any) -> None:
        """`config` are the settings of the search."""
        self.tokenizer = tokenizer
        self.nodes: list[BeamNode] = []
        self._beam_size, self._length_penalty = config.beam_size, config.length_penalty
        self._penalty = penalty_of(search_options(config, SpecialIds()))
        self._child: dict[tuple[int, int], int] = {}  # (parent, token) to the node
        self._live = [-1]  # the node of each live hypothesis, in the order of the search
        self._steps = 0

    def grow(self, candidates: Sequence[Continuation]) -> None:
        """One step: the best continuations, best first. Those that end are finished, the best others are kept."""
        live: list[int] = []
        for each in candidates:
            status = "finished" if each.ended else "kept" if len(live) < self._beam_size else "pruned"
            node = self._add(self._live[each.parent], self._steps, each.token, each.log_prob, status)
            if status == "kept":
                live.append(node)
        self._live, self._steps = live, self._steps + 1

    def choose(self, tokens: Sequence[int]) -> None:
        """Mark the path of these tokens, the translation."""
        node = -1
        for token in tokens:
            node = self._child[node, token]
            self.nodes[node] = replace(self.nodes[node], status="chosen")

    def _add(self, parent: int, step: int, token: int, log_prob: float, status: str) -> int:
        (piece,) = self.tokenizer.pieces([token])
        score = log_prob / self._penalty(step + 1, self._length_penalty)
        self._child[parent, token] = len(self.nodes)
        self.nodes.append(BeamNode(parent, step, piece, log_prob, score, status))
        return len(self.nodes) - 1


def _only_path(translator: TextTranslator, hypothesis: Hypothesis, config: Any) -> list[BeamNode]:
    pieces = translator.tokenizer.pieces(output_ids(hypothesis, translator.tokenizer.eos_id))
    log_probs, penalty = accumulate(hypothesis.token_log_probs), penalty_of(search_options(config, SpecialIds()))
    return [
        BeamNode(i - 1, i, piece, log_prob, log_prob / penalty(i + 1, config.length_penalty), "chosen")
        for i, (piece, log_prob) in enumerate(zip(pieces, log_probs, strict=True))
    ]
