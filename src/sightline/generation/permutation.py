"""XLNet with the verbs that suit it: it writes on, says how probable a text is, fills in masks and embeds; or labels.

What it predicts it predicts from the query stream, which does not see the token itself; the content stream stands for
texts. `write_on`, `perplexity`, `fill` and `embed` are those of every other family: the small classes here give them a
network that reads in the order each of them needs. Not here: the network (`sightline.architectures.xlnet`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.architectures.xlnet import XLNet

BEHIND = ("<sep>", "<cls>")  # what its vocabulary puts behind a text


@dataclass
class TextSoFar:
    """The cache of a network that reads its whole text again for every token: the text."""

    padding: Int[Tensor, " rows"]  # tokens that stand before each text
    tokens: Int[Tensor, "rows length"]

    def reorder(self, index: Int[Tensor, " rows"]) -> None:
        """Row i becomes what row index[i] was."""
        self.select(index)

    def select(self, index: Int[Tensor, " kept"]) -> None:
        """Keep the rows of `index`, in its order, repeated where it repeats."""
        self.padding, self.tokens = self.padding[index], self.tokens[index]


class XLNetReading(nn.Module):
    """An XLNet that reads in some order."""

    def __init__(self, network: XLNet) -> None:
        super().__init__()
        self.network = network

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the pieces."""
        return self.network.logits(hidden)


class LeftToRight(XLNetReading):
    """Reads to say what comes next. Nobody sees the place of the next token."""

    def start_cache(self, padding: Int[Tensor, " rows"]) -> TextSoFar:
        """Texts of no token so far."""
        return TextSoFar(padding, torch.zeros(len(padding), 0, dtype=torch.long, device=padding.device))

    def decode(
        self, tokens: Int[Tensor, "rows new"], cache: TextSoFar | None = None
    ) -> Float[Tensor, "rows predictions d_model"]:
        """The states that predict the next token: after the text in the cache and `tokens`, all of which see each other
        as far as the model's direction lets them, or, without a cache, after each token from those before.
        """
        if cache is None:
            return self._after_each(tokens)
        cache.tokens = torch.cat([cache.tokens, tokens], 1)
        text = _with_a_place(cache.tokens)
        length = text.size(1)
        at = torch.arange(length, device=text.device)
        seen = (at < length - 1).expand(len(text), length, length)
        last = at[-1:].expand(len(text), 1)
        return self.network.states(text, at >= cache.padding.unsqueeze(1), visible=seen, targets=last).hidden

    def _after_each(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d_model"]:
        text = _with_a_place(tokens)
        at = torch.arange(text.size(1), device=text.device)
        before = (at < at.unsqueeze(1)).expand(len(text), -1, -1)
        return self.network.states(text, visible=before, targets=at[1:].expand(len(text), -1)).hidden


class QueryStream(XLNetReading):
    """Reads a text to say what stands at each place of it. Nobody sees a mask, and no place itself."""

    def __init__(self, network: XLNet, mask_id: int) -> None:
        super().__init__(network)
        self.mask_id = mask_id

    def encode(self, src: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d_model"]:
        """The query stream's states."""
        at = torch.arange(src.size(1), device=src.device)
        seen = (src != self.mask_id).unsqueeze(1) & (at != at.unsqueeze(1))
        return self.network.states(src, visible=seen, targets=at.expand(len(src), -1)).hidden


class ContentStream(XLNetReading):
    """Reads a text that it knows."""

    def encode(
        self, src: Int[Tensor, "rows length"], src_mask: Bool[Tensor, "rows length"]
    ) -> Float[Tensor, "rows length d_model"]:
        """The content stream's states."""
        return self.network.states(src, src_mask).hidden


def _with_a_place(tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows longer"]:
    """Room for one token more; which one stands there nobody sees."""
    return torch.cat([tokens, tokens.new_zeros(len(tokens), 1)], 1)
