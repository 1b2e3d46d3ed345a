"""Score given translations: the probability that a model assigns to each token. There is no search."""

import math
from collections.abc import Sequence

from headwise.data.pair_tokenizer import PairTokenizer
from headwise.decode.request import non_finite_error
from headwise.errors import UserError
from headwise.evaluate.score import SCORED_TOGETHER, PairScore
from headwise.inspect.reader import Ids, PairReader


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
