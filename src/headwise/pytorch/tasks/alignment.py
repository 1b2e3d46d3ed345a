"""Guided alignment: one cross-attention head is trained to align words, as a second objective.

Garg et al. 2019 (arXiv:1909.02074, section 4.2). The head is in the penultimate layer of the decoder unless
`train.alignment_layer` names another. For target token m and source token n, G_mn spreads 1 evenly over the source
tokens linked to m, and A_mn is the attention of the head in the row that predicts m:

    L = L_translation - alignment_weight * sum_m sum_n G_mn log A_mn.

Tokens without a link are ignored. Deviation: the paper gives this head the whole target in a second pass (section 4.3),
which doubles the time of a step; here it sees only the target prefix.
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
from headwise.core.attention import MultiHeadAttention, scaled_dot_product_attention
from headwise.core.batches import Batch
from headwise.core.loss import Loss
from headwise.core.train import Objective
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.pytorch.tasks.job import TrainRequest
from headwise.text.files.alignment import corpus_links, words_of_tokens
from headwise.text.files.columns import Column
from headwise.text.files.corpus import Corpus
from headwise.text.files.sources import Pair
from headwise.text.prepared.batch_planning import Pairs
from headwise.text.prepared.file_hashes import short_hash
from headwise.text.prepared.prepared import PreparedCorpus
from headwise.text.tokens.pair_tokenizer import PairTokenizer

TINY = 1e-9  # keeps logarithms finite


def training_links(
    request: TrainRequest, config: RunConfig, corpora: Sequence[Corpus], prepared: Pairs, key: str
) -> tuple[Column, str]:
    """The links of the training pairs, and the key of the corpus with them; `UserError` without file or weight."""
    if not (request.alignments and config.train.alignment_weight):
        raise UserError(
            "train.alignment_weight and --alignments need each other: the weight of the links, and the file with them"
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
    """The translation `objective` plus the alignment loss of the first head of a layer.

    Args:
        layer: of the decoder, from 0.
        weight: of the alignment loss.
        links: for each pair of the corpus, flattened pairs of word numbers.
        text: gives source and target of a pair.
    """
    attention = model.decoder.layers[layer].cross_attn
    assert isinstance(attention, MultiHeadAttention)

    def both(batch: Batch) -> Loss:
        with _inputs_of(attention) as inputs:
            loss = objective(batch)
        target = torch.from_numpy(_target_alignment(batch, links, text, tokenizer)).to(batch.src.device)
        error = _cross_entropy(first_head(attention, *inputs), target)
        return Loss(loss.objective + weight * error, {**loss.figures, "alignment": error.detach()})

    return both


@contextmanager
def _inputs_of(attention: nn.Module) -> Iterator[list[Any]]:
    """Record the inputs of the attention: queries, memory, mask."""
    recorded: list[Any] = []
    handle = attention.register_forward_pre_hook(lambda _, inputs: recorded.extend(inputs[:3]))
    try:
        yield recorded
    finally:
        handle.remove()


def first_head(
    attention: MultiHeadAttention,
    x: Float[Tensor, "batch tgt_len d_model"],
    memory: Float[Tensor, "batch src_len d_model"],
    mask: Bool[Tensor, "batch 1 1 src_len"],
) -> Float[Tensor, "batch tgt_len src_len"]:
    """The attention weights of the first head, differentiable; the fused kernel does not return them."""
    d_k = attention.q_proj.out_features // attention.n_heads
    q, k = (
        F.linear(states, projection.weight[:d_k], projection.bias[:d_k]).unsqueeze(1)
        for states, projection in ((x, attention.q_proj), (memory, attention.k_proj))
    )
    return scaled_dot_product_attention(q, k, k, mask)[1].squeeze(1)


def _cross_entropy(
    weights: Float[Tensor, "rows tgt_len src_len"], target: Float[Tensor, "batch tgt_len src_len"]
) -> Float[Tensor, ""]:
    """Summed over target tokens; with R-Drop, the mean of the two passes."""
    passes = len(weights) // len(target)
    return -(target.repeat(passes, 1, 1) * weights.float().clamp_min(TINY).log()).sum() / passes


def _target_alignment(
    batch: Batch, links: Column, text: Callable[[int], Pair], tokenizer: PairTokenizer
) -> Float[np.ndarray, "batch tgt_len src_len"]:
    """For each target token equal shares for its linked source tokens; zeros if its word has no link."""
    target = np.zeros((*batch.tgt_out.shape, batch.src.size(1)), np.float32)
    for row, pair in zip(target, batch.index.tolist(), strict=True):
        (_, src_words), (_, tgt_words) = (words_of_tokens(tokenizer, side) for side in text(pair))
        for i, j in links[pair].reshape(-1, 2):
            row[: len(tgt_words), : len(src_words)] += np.outer(tgt_words == j, src_words == i)
    return target / np.maximum(target.sum(-1, keepdims=True), 1)
