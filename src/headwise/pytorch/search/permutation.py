"""XLNet in the reading orders of language models, masked language models and encoders.

Predictions come from the query stream, which does not see the token itself; embeddings come from the content stream.
`continue_prompts`, `perplexity`, `fill` and `embed` are shared by all families; the classes here give them a network
with the right reading order. See `headwise.pytorch.architectures.xlnet` for the network.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.pytorch.architectures.xlnet import XLNet


@dataclass
class TextSoFar:
    """The cache of a network that reads the whole text again for every token: the text."""

    padding: Int[Tensor, " rows"]  # padding before each text
    tokens: Int[Tensor, "rows length"]

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Replace row i by row index[i]."""
        self.select(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats."""
        self.padding, self.tokens = self.padding[index], self.tokens[index]


class XLNetReading(nn.Module):
    """An XLNet with a reading order."""

    def __init__(self, network: XLNet) -> None:
        super().__init__()
        self.network = network

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Logits of the tokens."""
        return self.network.logits(hidden)


class LeftToRight(XLNetReading):
    """Predicts the next token; its position is masked for all others."""

    def start_cache(self, padding: Int[Tensor, " rows"]) -> TextSoFar:
        """Empty texts."""
        return TextSoFar(padding, torch.zeros(len(padding), 0, dtype=torch.long, device=padding.device))

    def decode(
        self, tokens: Int[Tensor, "rows new"], cache: TextSoFar | None = None
    ) -> Float[Tensor, "rows predictions d_model"]:
        """The states that predict the next token: after the text of the cache and `tokens`, or without a cache after
        each token.
        """
        if cache is None:
            return self._after_each(tokens)
        cache.tokens = torch.cat([cache.tokens, tokens], 1)
        text = _with_next_position(cache.tokens)
        length = text.size(1)
        at = torch.arange(length, device=text.device)
        seen = (at < length - 1).expand(len(text), length, length)
        last = at[-1:].expand(len(text), 1)
        return self.network.states(text, at >= cache.padding.unsqueeze(1), visible=seen, targets=last).hidden

    def _after_each(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d_model"]:
        text = _with_next_position(tokens)
        at = torch.arange(text.size(1), device=text.device)
        before = (at < at.unsqueeze(1)).expand(len(text), -1, -1)
        return self.network.states(text, visible=before, targets=at[1:].expand(len(text), -1)).hidden


class QueryStream(XLNetReading):
    """Predicts the token at each position from all others; masks are invisible."""

    def __init__(self, network: XLNet, mask_id: int) -> None:
        super().__init__(network)
        self.mask_id = mask_id

    def encode(self, src: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d_model"]:
        """The states of the query stream."""
        at = torch.arange(src.size(1), device=src.device)
        seen = (src != self.mask_id).unsqueeze(1) & (at != at.unsqueeze(1))
        return self.network.states(src, visible=seen, targets=at.expand(len(src), -1)).hidden


class ContentStream(XLNetReading):
    """Encodes a text."""

    def encode(
        self, src: Int[Tensor, "rows length"], src_mask: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "rows length d_model"]:
        """The states of the content stream."""
        return self.network.states(src, src_mask).hidden


def _with_next_position(tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows longer"]:
    """The text with one more position, whose token is masked."""
    return torch.cat([tokens, tokens.new_zeros(len(tokens), 1)], 1)
