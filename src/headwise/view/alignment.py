"""Word alignment from attention: which source word a model attended to for each target word.

HeadWeights of tokens are summed to words, and each target word is linked to the source word with the greatest weight,
end tokens excepted. The best head differs from model to model: `rank_heads` tries every head, the mean of every layer,
and both rows of a token, on pairs with known links. In some models the row that *predicts* a token attends to its
source, in others the row that *reads* it afterwards (Chen et al. 2020, arXiv:2004.14837, "shift-att").

`grow_diagonal` symmetrises the links of two models, one for each direction. See `text/files/links.py` for files of
links and `evaluate/alignment.py` for error rates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from headwise.errors import UserError
from headwise.evaluate.alignment import AlignmentScore, score_alignment
from headwise.text.files.alignment import NO_WORD, words_of_tokens
from headwise.text.files.links import GoldLinks, Link, Links
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.view.reader import HeadWeights, PairReader
from headwise.view.record import ROWS

Words = Int64[np.ndarray, " _"]  # of each token


@dataclass(frozen=True)
class AlignmentHead:
    """The attention over the source that links are read from."""

    layer: int  # of the decoder, from 0
    head: int | None  # from 0; None = the mean of the layer's heads
    row: str  # of a token: the one that "predicts" it or the one that "reads" it

    def __str__(self) -> str:
        head = "mean of heads" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {head}, row that {self.row}"

    def as_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


@dataclass(frozen=True)
class _Pair:
    """A pair as ids, with the word of each token."""

    src: list[int]
    tgt: list[int]
    src_words: Words
    tgt_words: Words
    n_tgt_words: int


def alignment_heads(heads: Sequence[int]) -> list[AlignmentHead]:
    """Every attention of the decoder over the source, given the heads of each layer; `UserError` if there is none."""
    _check_layers(heads)
    return [
        AlignmentHead(layer, head, row)
        for layer, n_heads in enumerate(heads)
        for head, row in product([None, *range(n_heads)], ROWS)
    ]


def default_head(heads: Sequence[int]) -> AlignmentHead:
    """The mean of the `usual_layer`, row that predicts."""
    _check_layers(heads)
    return AlignmentHead(usual_layer(len(heads)), None, "predicts")


def usual_layer(n_layers: int) -> int:
    """The layer whose mean usually aligns best in the row that predicts a token: the last but one (Garg et al. 2019,
    arXiv:1909.02074, section 4.1). Of two layers it is the last: the first attends for the token that it reads.

    >>> [usual_layer(n) for n in (1, 2, 3, 6)]
    [0, 1, 1, 4]
    """
    return n_layers - 2 if n_layers > 2 else n_layers - 1


def align(
    reader: PairReader,
    tokenizer: PairTokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    head: AlignmentHead,
    batch_tokens: int = 4096,
    max_len: int | None = None,
) -> list[Links]:
    """The links of each pair: every target word to one source word, by one head.

    Args:
        reader: of a network with attention over the source.
        targets: translations from any source; line n belongs to line n of `sources`.
        batch_tokens: tokens in a batch, rows times the longer side.
        max_len: the longest sequence the model reads, if it has a limit.

    Raises:
        UserError: the model has no such head, the numbers of lines differ, or a pair is too long for the model.
    """
    check_head(reader.heads["cross"], head)
    return [_links(best[0]) for best in _best_words(reader, tokenizer, sources, targets, [head], batch_tokens, max_len)]


def rank_heads(
    reader: PairReader,
    tokenizer: PairTokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    gold: Sequence[GoldLinks],
    batch_tokens: int = 4096,
) -> dict[AlignmentHead, AlignmentScore]:
    """Every attention of the decoder with its error rate on these pairs, best first.

    `gold` may come from another aligner instead of annotators; some hundred pairs are enough to choose.
    """
    heads = alignment_heads(reader.heads["cross"])
    found = _best_words(reader, tokenizer, sources, targets, heads, batch_tokens)
    scores = {head: score_alignment([_links(best[i]) for best in found], gold) for i, head in enumerate(heads)}
    return dict(sorted(scores.items(), key=lambda item: item[1].aer))


def check_head(heads: Sequence[int], head: AlignmentHead) -> None:
    """`UserError` if the model, given the heads of each layer, has no such head."""
    _check_layers(heads)
    if not 0 <= head.layer < len(heads):
        raise UserError(
            f"layer {head.layer}: the decoder has attention over the source in layers 0 to {len(heads) - 1}"
        )
    n_heads = heads[head.layer]
    if head.head is not None and not 0 <= head.head < n_heads:
        raise UserError(f"head {head.head}: layer {head.layer} has heads 0 to {n_heads - 1}")
    if head.row not in ROWS:
        raise UserError(f"row '{head.row}': must be 'predicts' or 'reads'")


def symmetrized(forward: Sequence[Links], backward: Sequence[Links]) -> list[Links]:
    """`grow_diagonal` for each pair; `backward` has (target word, source word)."""
    turned = [frozenset((i, j) for j, i in links) for links in backward]
    return [grow_diagonal(one, other) for one, other in zip(forward, turned, strict=True)]


def grow_diagonal(forward: Links, backward: Links) -> Links:
    """Symmetrise the links of both directions, each as (source word, target word).

    Starts from the intersection and repeatedly adds links of the union that neighbour a link (diagonals included) and
    link a word without links: "grow-diag" of Koehn et al. 2005 (https://aclanthology.org/2005.iwslt-1.8, section 2.2).
    """
    union, links = forward | backward, set(forward & backward)
    around = [step for step in product((-1, 0, 1), repeat=2) if step != (0, 0)]
    waiting = sorted(links)
    while waiting:
        i, j = waiting.pop(0)
        for link in ((i + di, j + dj) for di, dj in around):
            if link in union and link not in links and _is_new(link, links):
                links.add(link)
                waiting.append(link)
    return frozenset(links)


def _is_new(link: Link, links: set[Link]) -> bool:
    """Whether one of the two words has no link yet."""
    return all(link[0] != i for i, _ in links) or all(link[1] != j for _, j in links)


def _check_layers(heads: Sequence[int]) -> None:
    if not heads:
        raise UserError("this model has no attention over its source (model.attention = none): it cannot align words")


def _links(source_words: Int64[np.ndarray, " tgt_words"]) -> Links:
    return frozenset((int(i), j) for j, i in enumerate(source_words) if i != NO_WORD)


def _best_words(
    reader: PairReader,
    tokenizer: PairTokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    heads: Sequence[AlignmentHead],
    batch_tokens: int,
    max_len: int | None = None,
) -> list[Int64[np.ndarray, "heads tgt_words"]]:
    """For each pair and head the source word of each target word, or `NO_WORD`."""
    if len(sources) != len(targets):
        raise UserError(f"{len(sources)} source but {len(targets)} target lines; line n belongs to line n")
    pairs = [_pair(tokenizer, src, tgt) for src, tgt in zip(sources, targets, strict=True)]
    _check_lengths(pairs, max_len)
    found = [np.full((len(heads), pair.n_tgt_words), NO_WORD) for pair in pairs]
    rows = [row for row, pair in enumerate(pairs) if pair.src and pair.tgt]
    ids = [_with_special_tokens(tokenizer, pairs[row]) for row in rows]
    layers = sorted({head.layer for head in heads})
    for i, weights in reader.cross_attention(ids, layers, batch_tokens):
        found[rows[i]] = _linked_words(pairs[rows[i]], weights, heads)
    return found


def _pair(tokenizer: PairTokenizer, src: str, tgt: str) -> _Pair:
    (src_ids, src_words), (tgt_ids, tgt_words) = words_of_tokens(tokenizer.source, src), words_of_tokens(tokenizer, tgt)
    return _Pair(src_ids, tgt_ids, src_words, tgt_words, len(tgt.split()))


def _check_lengths(pairs: Sequence[_Pair], max_len: int | None) -> None:
    longest = [max(len(pair.src), len(pair.tgt)) + 1 for pair in pairs]
    for number, length in enumerate(longest if max_len else [], start=1):
        if max_len and length > max_len:
            raise UserError(f"pair {number}: has {length} tokens, and this model reads {max_len}: shorten the line")


def _with_special_tokens(tokenizer: PairTokenizer, pair: _Pair) -> tuple[list[int], list[int]]:
    return [*pair.src, tokenizer.source.eos_id], [tokenizer.bos_id, *pair.tgt, tokenizer.eos_id]


def _linked_words(
    pair: _Pair, weights: Mapping[int, HeadWeights], heads: Sequence[AlignmentHead]
) -> Int64[np.ndarray, "chosen tgt_words"]:
    """For each head the source word of each target word, or `NO_WORD`."""
    src = _membership(pair.src_words, len(pair.src) + 1)
    # A token is predicted in its own row of the weights and read in the next one.
    tgt = {row: _membership(pair.tgt_words, len(pair.tgt) + 1, ROWS.index(row)) for row in ROWS}
    found = np.full((len(heads), pair.n_tgt_words), NO_WORD)
    for i, head in enumerate(heads):
        layer = weights[head.layer]
        one = layer.mean(0) if head.head is None else layer[head.head]
        words = tgt[head.row].T @ (one @ src)  # (tgt_words, src_words)
        best = np.where(words.sum(-1) > 0, words.argmax(-1), NO_WORD)  # a word without tokens has no link
        found[i] = best[: pair.n_tgt_words]
    return found


def _membership(words: Words, length: int, shift: int = 0) -> Float[np.ndarray, "length n_words"]:
    """1 where a token belongs to a word; tokens are shifted right by `shift` positions."""
    matrix = np.zeros((length, max(1, 1 + int(words.max()))), np.float32)
    positions = np.flatnonzero(words != NO_WORD)
    matrix[positions + shift, words[positions]] = 1.0
    return matrix


def supervised_layer(setting: int, n_layers: int) -> int:
    """The layer that `train.alignment_layer` means, from 0; the last but one of a single layer is that layer.

    >>> supervised_layer(-2, 6), supervised_layer(-2, 1), supervised_layer(3, 6)
    (4, 0, 3)
    """
    return setting if setting >= 0 else max(0, n_layers + setting)
