"""How well the attention of a translator links words: alignment error, and what the deletion of a source word costs."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.lab.study.statement import Row
from headwise.text.files.alignment import words_of_tokens
from headwise.text.files.links import GoldLinks, Links, read_gold

MOST_PROBLEMS = 60  # sentences, for the choice of a head and for the test
DELETIONS = 2  # target words tried in each sentence


def attention_row(model: Any, pairs: Sequence[tuple[str, str]], gold: str) -> Row:
    """Error rates of the links, and the cost of deletions; the head is chosen on the first sentences.

    Without a `gold` file it is the head from which `headwise align` reads links, and there is no error rate.
    """
    n = min(len(pairs) // 2, MOST_PROBLEMS)
    first, rest, found = pairs[:n], pairs[n : n + MOST_PROBLEMS], Row()
    known = read_gold(gold) if gold else []
    head = next(iter(model.rank_heads(*sides(first), known[:n]))) if known else None
    links = model.align(*sides(rest), head=head)
    if known:
        truth = known[n : n + MOST_PROBLEMS]
        diagonals = [diagonal(len(src.split()), len(tgt.split())) for src, tgt in rest]
        found = {"error": error_rate(links, truth), "diagonal_error": error_rate(diagonals, truth)}
    drops = [drop for pair, own in zip(rest, links, strict=True) for drop in deletion_drops(model, pair, own)]
    return {**found, "deletion": float(np.mean(drops))} if drops else found


def sides(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Sources and targets."""
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def error_rate(links: Sequence[Links], gold: Sequence[GoldLinks]) -> float:
    """Alignment error rate, as a share: 1 - correct / (links + sure) (Och and Ney 2003)."""
    correct = sum(len(own & truth.sure) + len(own & truth.possible) for own, truth in zip(links, gold, strict=True))
    return 1 - correct / (sum(map(len, links)) + sum(len(truth.sure) for truth in gold))


def diagonal(n_src: int, n_tgt: int) -> Links:
    """Every target word linked to the source word at the same relative place.

    >>> sorted(diagonal(2, 4))
    [(0, 0), (0, 1), (1, 2), (1, 3)]
    """
    return frozenset((int((j + 0.5) * n_src / n_tgt), j) for j in range(n_tgt)) if n_src else frozenset()


def deletion_drops(model: Any, pair: tuple[str, str], links: Links) -> list[float]:
    """For some target words, what deleting the linked source word costs more than deleting another, in nats."""
    src, tgt = pair[0].split(), pair[1]
    attended = {j: i for i, j in links}
    chosen = random.sample(sorted(attended), min(DELETIONS, len(attended))) if len(src) > 1 else []
    trials = [(attended[j], random.choice([i for i in range(len(src)) if i != attended[j]])) for j in chosen]
    if not trials:
        return []
    shortened = [" ".join(src[:i] + src[i + 1 :]) for deleted in trials for i in deleted]
    scores = model.score([pair[0], *shortened], [tgt] * (1 + len(shortened)))
    words = words_of_tokens(model.tokenizer, tgt)[1]
    logs = [np.array(score.token_log_probs)[: len(words)] for score in scores]
    return [float((logs[2 + 2 * t] - logs[1 + 2 * t])[words == j].sum()) for t, j in enumerate(chosen)]
