"""Beam search as a tree: every continuation that the search ranked, and what became of it.

The search is the ordinary one with somebody watching; what it finds is what `translate` finds. Not here: the search
(`decode/search.py`), and what the model thought at a position (`trace`).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from sightline.data.side import Side
from sightline.decode.candidates import Candidates
from sightline.decode.contract import Hypothesis, SearchOptions
from sightline.decode.ending import Ending
from sightline.decode.engine import not_finite
from sightline.decode.search import Continuations, beam_search
from sightline.decode.steps import evaluating
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
    with evaluating(translator.form(config)), torch.inference_mode():
        start, options = translator.start(source, prefix, config)
        tree = BeamTree(translator.tokenizer, options, translator.ending(config), start.few, start.begun)
        found = beam_search(start.step, start.cache, start.limits, options, tree.grow)[0]
    if not found or not torch.tensor(found[0].log_prob).isfinite():
        raise not_finite()
    hypothesis = after(start.begun, start.few.with_ids(found[0]) if start.few else found[0])
    tree.choose(written(hypothesis, translator.tokenizer.eos_id))
    return hypothesis, tree.nodes


class BeamTree:
    """Grows by the candidates of one sentence, step by step."""

    def __init__(
        self, tokenizer: Side, options: SearchOptions, ending: Ending, few: Candidates | None, begun: Sequence[int] = ()
    ) -> None:
        """`ending` knows the penalty of a length that counts what outputs begin with, `begun`."""
        self.tokenizer = tokenizer
        self._ending = ending
        self.options = options
        self.nodes: list[BeamNode] = []
        self._few = few
        self._child: dict[tuple[int, int], int] = {}  # (parent, token) to the node
        self._live = [-1]  # the node of each living hypothesis, as the search numbers them
        self._begun = len(begun)
        for step, token in enumerate(begun):
            self._live = [self._add(self._live[0], step, token, 0.0, "kept")]

    def grow(self, candidates: Continuations) -> None:
        """One step: the best continuations, best first. Ends finish, the best others live on."""
        step = self._begun + candidates.tokens.size(-1) - 1
        tokens = candidates.tokens[0, :, -1]
        ids = tokens.tolist() if self._few is None else self._few.ids[tokens.tolist()].tolist()
        columns = (candidates.parents[0], candidates.log_probs[0], candidates.ended[0])
        live: list[int] = []
        for token, parent, log_prob, ended in zip(ids, *(c.tolist() for c in columns), strict=True):
            if log_prob == -float("inf"):  # not allowed, or of a hypothesis that does not exist
                continue
            status = "finished" if ended else "kept" if len(live) < self.options.beam_size else "pruned"
            node = self._add(self._live[parent], step, token, log_prob, status)
            if status == "kept":
                live.append(node)
        self._live = live

    def choose(self, tokens: Sequence[int]) -> None:
        """Mark the path of these tokens, the translation."""
        node = -1
        for token in tokens:
            node = self._child[node, token]
            self.nodes[node] = replace(self.nodes[node], status="chosen")

    def _add(self, parent: int, step: int, token: int, log_prob: float, status: str) -> int:
        (piece,) = self.tokenizer.pieces([token])
        score = log_prob / self._ending.penalty(step + 1, self.options.length_penalty)
        self._child[parent, token] = len(self.nodes)
        self.nodes.append(BeamNode(parent, step, piece, log_prob, score, status))
        return len(self.nodes) - 1


def after(begun: Sequence[int], found: Hypothesis) -> Hypothesis:
    """What was found with what it begins with, which is certain."""
    return replace(found, tokens=[*begun, *found.tokens], token_log_probs=[0.0] * len(begun) + found.token_log_probs)


def _only_path(translator: Translating, hypothesis: Hypothesis, config: Any) -> list[BeamNode]:
    pieces = translator.tokenizer.pieces(written(hypothesis, translator.tokenizer.eos_id))
    log_probs, penalty = accumulate(hypothesis.token_log_probs), translator.ending(config).penalty
    return [
        BeamNode(i - 1, i, piece, log_prob, log_prob / penalty(i + 1, config.length_penalty), "chosen")
        for i, (piece, log_prob) in enumerate(zip(pieces, log_probs, strict=True))
    ]
