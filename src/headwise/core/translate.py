"""Translation of token ids (section 6.1): encode the sources, then search with the decoder, one step after the other.

Files and texts are in `text`, requests and shortlists in `runtime.search`, and the product's engine, which adds them,
prompts and captured graphs, in `pytorch.search.stepwise`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.contract import FREE, EncoderDecoder, Hypothesis, Limits, SearchOptions
from headwise.core.search import Step, beam_search


@torch.inference_mode()
def translate(
    network: EncoderDecoder, sources: Sequence[Sequence[int]], options: SearchOptions, longest: Sequence[int]
) -> list[list[Hypothesis]]:
    """The hypotheses of each source, best first, by greedy or beam search; the network is in evaluation mode.

    Args:
        sources: token ids with their end tokens, at least one each.
        longest: tokens of each output at most, with its end token.
    """
    src, src_mask = pad_right(sources)
    cache = network.start_cache(network.encode(src, src_mask), src_mask)
    most = torch.tensor(longest)
    limits = Limits(torch.zeros_like(most), most, torch.full((len(most), 0), FREE))
    return beam_search(step_of(network), cache, limits, options)


def step_of(network: EncoderDecoder) -> Step:
    """The step function of a network for one search: from the newest tokens to the logits that follow them."""

    def step(tokens: Int[Tensor, "rows new"], cache: Any) -> Float[Tensor, "rows vocab"]:
        hidden = network.decode(tokens, cache.memory, cache.src_mask, cache)
        return network.logits(hidden[:, -1])

    return step


def pad_right(
    sources: Sequence[Sequence[int]], pad_id: int = 0
) -> tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]:
    """Sources as one padded matrix, and a mask that is True on real tokens.

    >>> pad_right([[5, 6], [7]])[0].tolist()
    [[5, 6], [7, 0]]
    """
    rows = [torch.tensor(list(source)) for source in sources]
    src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)
    return src, torch.arange(src.size(1)) < torch.tensor([len(source) for source in sources]).unsqueeze(1)
