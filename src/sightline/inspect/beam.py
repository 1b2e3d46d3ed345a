"""Beam search as a tree: every continuation that the search ranked, and what became of it.

The search is the ordinary one with somebody watching; what it finds is what `translate` finds. Not here: the search
(`decode/search.py`), and what the model thought at a position (`trace`).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from sightline.contract import Continuation, Hypothesis
from sightline.data.side import Side
from sightline.decode.ending import Ending
from sightline.inspect.pair import Translating, written
from sightline.inspect.record import BeamNode


def watched_search(
    translator: Translating, source: list[int], prefix: list[int], config: Any
) -> tuple[Hypothesis, list[BeamNode]]:
    """What `translate` would choose for a source, and the tree of everything it ranked on the way.

    Greedy search and sampling rank nothing: their tree is the one path they took.
    """
    if config.sample or config.beam_size == 1:
        hypothesis = translator.search([[source]], prefix, config)[0][0]
        return hypothesis, _only_path(translator, hypothesis, config)
    tree = BeamTree(translator.tokenizer, config.beam_size, config.length_penalty, translator.ending(config))
    hypothesis = translator.watched(source, prefix, config, tree.grow)
    tree.choose(written(hypothesis, translator.tokenizer.eos_id))
    return hypothesis, tree.nodes


class BeamTree:
    """Grows by the candidates of one sentence, step by step."""

    def __init__(self, tokenizer: Side, beam_size: int, length_penalty: float, ending: Ending) -> None:
        """`ending` knows the penalty of a length that counts what outputs begin with."""
        self.tokenizer = tokenizer
        self.nodes: list[BeamNode] = []
        self._beam_size, self._length_penalty, self._ending = beam_size, length_penalty, ending
        self._child: dict[tuple[int, int], int] = {}  # (parent, token) to the node
        self._live = [-1]  # the node of each living hypothesis, as the search numbers them
        self._steps = 0

    def grow(self, candidates: Sequence[Continuation]) -> None:
        """One step: the best continuations, best first. Ends finish, the best others live on."""
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
        score = log_prob / self._ending.penalty(step + 1, self._length_penalty)
        self._child[parent, token] = len(self.nodes)
        self.nodes.append(BeamNode(parent, step, piece, log_prob, score, status))
        return len(self.nodes) - 1


def _only_path(translator: Translating, hypothesis: Hypothesis, config: Any) -> list[BeamNode]:
    pieces = translator.tokenizer.pieces(written(hypothesis, translator.tokenizer.eos_id))
    log_probs, penalty = accumulate(hypothesis.token_log_probs), translator.ending(config).penalty
    return [
        BeamNode(i - 1, i, piece, log_prob, log_prob / penalty(i + 1, config.length_penalty), "chosen")
        for i, (piece, log_prob) in enumerate(zip(pieces, log_probs, strict=True))
    ]
