"""Forced decoding: score given translations with an encoder-decoder. There is no search."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.contract import EncoderDecoder
from headwise.data.batch import Batch, Tokens, collate
from headwise.data.batch_planning import cut_padded
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.decode.request import non_finite_error
from headwise.decode.stepwise import evaluating
from headwise.errors import UserError
from headwise.evaluate.score import SCORED_TOGETHER, PairScore


def score_texts(
    model: EncoderDecoder,
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
        scores += score_pairs(model, pairs, t.pad_id, t.bos_id, t.eos_id, batch_tokens, t.source.eos_id)
    return scores


def score_pairs(
    model: EncoderDecoder,
    pairs: Sequence[tuple[Tokens, Tokens]],
    pad_id: int = 0,
    bos_id: int = 1,
    eos_id: int = 2,
    batch_tokens: int = 4096,
    src_end_id: int | None = None,
) -> list[PairScore]:
    """Score pairs of (source, target) ids without start and end tokens, in the order in which they come.

    Pairs of similar length share a batch: rows x longest side stays within `batch_tokens` (a pair that is longer
    on its own is a batch of its own). The batching changes no score beyond the rounding of floats. Works on
    the model's device and without dropout, and leaves the model in the mode it was in. `src_end_id` as of `collate`.

    Raises:
        UserError: the model is damaged: it gives NaN for a probability.
    """
    scores: dict[int, PairScore] = {}
    device = next(model.parameters()).device
    with evaluating(model), torch.inference_mode():
        for rows in _batches(pairs, batch_tokens):
            batch = collate([pairs[row] for row in rows], pad_id, bos_id, eos_id, src_end_id=src_end_id)
            log_probs = _target_log_probs(model, batch.to(device)).tolist()
            for row, values in zip(rows, log_probs, strict=True):
                scores[row] = PairScore(values[: len(pairs[row][1]) + 1])
                if any(map(math.isnan, scores[row].token_log_probs)):
                    raise non_finite_error()
    return [scores[row] for row in range(len(pairs))]


def _target_log_probs(model: EncoderDecoder, batch: Batch) -> Float[Tensor, "batch tgt_len"]:
    memory = model.encode(batch.src, batch.src_mask)
    logits = model.logits(model.decode(batch.tgt_in, memory, batch.src_mask)).float()
    chosen = logits.gather(-1, batch.tgt_out.unsqueeze(-1)).squeeze(-1)
    # The log softmax at the chosen tokens only, without a second tensor of the size of the vocabulary.
    return chosen - logits.logsumexp(-1)


def _batches(pairs: Sequence[tuple[Tokens, Tokens]], batch_tokens: int) -> Iterator[list[int]]:
    """Rows in groups of similar length, longest first, so that memory trouble shows at once."""
    longer = np.array([max(len(src), len(tgt)) + 1 for src, tgt in pairs], dtype=np.int64)
    order = np.argsort(longer, kind="stable")
    for rows in reversed(cut_padded(order, longer[order], batch_tokens)):
        yield rows.tolist()
