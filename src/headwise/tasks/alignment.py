"""An attention head that learns to align: links between words, of another aligner or of people, as a second task.

Garg et al. 2019 (arXiv:1909.02074, section 4.2): one head of the decoder's attention over the source, of the last
layer but one unless `train.alignment_layer` says otherwise, is pulled towards given links. With G a row for each target
piece, spread evenly over the source pieces it is linked to, and A the head's weights in the row that predicts it,

    L = L_translation - alignment_weight * sum_m sum_n G_mn log A_mn.

Pieces without a link are left alone. Deviation: the paper lets this head see the whole target in a second pass (its
section 4.3), which doubles the time of a step; here it sees what the translation sees.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config.settings import RunConfig
from headwise.data.alignment import corpus_links, words_of_tokens
from headwise.data.batch import Batch
from headwise.data.batch_planning import Pairs
from headwise.data.corpus import Corpus
from headwise.data.file_hashes import short_hash
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.prepared import Column, PreparedCorpus
from headwise.data.sources import Pair
from headwise.errors import UserError
from headwise.network.attention import MultiHeadAttention, scaled_dot_product_attention
from headwise.network.transformer import Transformer
from headwise.tasks.job import TrainRequest
from headwise.training.loss import Loss
from headwise.training.step import Objective

TINY = 1e-9  # a weight's logarithm stays finite


def links_to_learn(
    request: TrainRequest, config: RunConfig, corpora: Sequence[Corpus], prepared: Pairs, key: str
) -> tuple[Column, str]:
    """The links of the training pairs, and the corpus's key with them; file and setting make sense together only."""
    if not (request.alignments and config.train.alignment_weight):
        raise UserError(
            "train.alignment_weight and --alignments belong together: how much links count, and the file that has them"
        )
    assert isinstance(prepared, PreparedCorpus)
    links = corpus_links(request.alignments, corpora, prepared)
    return links, short_hash(key, links.values.tolist(), links.ends.tolist())


def alignment_objective(
    objective: Objective,
    model: Transformer,
    layer: int,
    weight: float,
    links: Column,
    text: Callable[[int], Pair],
    tokenizer: PairTokenizer,
) -> Objective:
    """`objective` of a translation with the first head of a layer pulled towards links.

    Args:
        layer: of the decoder, from 0.
        weight: of the alignment against the translation.
        links: of every pair of the corpus, word numbers in turn.
        text: the words of a pair.
    """
    attention = model.decoder.layers[layer].cross_attn
    assert isinstance(attention, MultiHeadAttention)

    def both(batch: Batch) -> Loss:
        with _inputs_of(attention) as seen:
            loss = objective(batch)
        wanted = torch.from_numpy(_wanted(batch, links, text, tokenizer)).to(batch.src.device)
        error = _cross_entropy(first_head(attention, *seen), wanted)
        return Loss(loss.objective + weight * error, {**loss.figures, "alignment": error.detach()})

    return both


@contextmanager
def _inputs_of(attention: nn.Module) -> Iterator[list[Any]]:
    """Inside, what the attention is called with: queries, memory, mask."""
    seen: list[Any] = []
    handle = attention.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs[:3]))
    try:
        yield seen
    finally:
        handle.remove()


def first_head(
    attention: MultiHeadAttention,
    x: Float[Tensor, "batch tgt_len d_model"],
    memory: Float[Tensor, "batch src_len d_model"],
    mask: Bool[Tensor, "batch 1 1 src_len"],
) -> Float[Tensor, "batch tgt_len src_len"]:
    """The weights of an attention's first head, differentiable; the fused kernel has none to give."""
    d_k = attention.q_proj.out_features // attention.n_heads
    q, k = (
        F.linear(states, projection.weight[:d_k], projection.bias[:d_k]).unsqueeze(1)
        for states, projection in ((x, attention.q_proj), (memory, attention.k_proj))
    )
    return scaled_dot_product_attention(q, k, k, mask)[1].squeeze(1)


def _cross_entropy(
    weights: Float[Tensor, "rows tgt_len src_len"], wanted: Float[Tensor, "batch tgt_len src_len"]
) -> Float[Tensor, ""]:
    """Summed over target pieces; under R-Drop a batch passes twice, and the mean of both counts."""
    passes = len(weights) // len(wanted)
    return -(wanted.repeat(passes, 1, 1) * weights.float().clamp_min(TINY).log()).sum() / passes


def _wanted(
    batch: Batch, links: Column, text: Callable[[int], Pair], tokenizer: PairTokenizer
) -> Float[np.ndarray, "batch tgt_len src_len"]:
    """For each target piece its linked source pieces in equal shares; zeros where a word has no link."""
    wanted = np.zeros((*batch.tgt_out.shape, batch.src.size(1)), np.float32)
    for row, pair in zip(wanted, batch.index.tolist(), strict=True):
        (_, src_words), (_, tgt_words) = (words_of_tokens(tokenizer, side) for side in text(pair))
        for i, j in links[pair].reshape(-1, 2):
            row[: len(tgt_words), : len(src_words)] += np.outer(tgt_words == j, src_words == i)
    return wanted / np.maximum(wanted.sum(-1, keepdims=True), 1)
