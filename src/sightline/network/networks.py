"""The families' networks: an encoder alone, a decoder alone, or both, with a front before and a head behind.

`EncoderDecoder` keeps the contract of every architecture (`encode`, `decode`, `logits`, `start_cache`); the paper's own
is `transformer.Transformer`. A decoder alone has `decode`, `logits` and `start_cache`. Built by `build_family`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.network.cache import DecoderCache, TextCache
from sightline.network.fronts import Front, TokenFront, from_zero
from sightline.network.masks import Causal
from sightline.network.stacks import Decoder, Encoder


class TextStack(nn.Module):
    """The paper's decoder without attention to a source, which is all that GPT kept of it: N layers, a final norm."""

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.reach = Causal()

    def forward(
        self,
        x: Float[Tensor, "batch new d_model"],
        mask: Bool[Tensor, "batch positions"] | None,
        cache: TextCache | None = None,
    ) -> Float[Tensor, "batch new d_model"]:
        """`mask` is True on real tokens, new and cached ones. With a cache `x` holds the new positions only."""
        seen, new = cache.length if cache else 0, x.size(1)
        visible = self.reach(mask, seen, new, x.device)
        for i, layer in enumerate(self.layers):
            x = layer(x, visible, cache.self_attn[i] if cache else None)
        if cache:
            cache.length += new
        return self.norm(x)


class EncoderOnly(nn.Module):
    """BERT and its relatives; ViT, whose tokens are patches."""

    def __init__(self, embeddings: Front, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.encoder = encoder
        self.head = head

    def encode(
        self,
        src: Int[Tensor, "batch length"] | Float[Tensor, "batch channels height width"],
        mask: Bool[Tensor, "batch length"] | None = None,
        types: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch positions d_model"]:
        """The last hidden states; arguments as of `forward`."""
        x = self.embeddings(src) if types is None else self.embeddings(src, types=types)
        return self.encoder(x, self.embeddings.real(mask))

    def logits(self, hidden: Float[Tensor, "batch positions d_model"]) -> Float[Tensor, "batch *out"]:
        """What the head makes of hidden states; the states themselves where the checkpoint has no head."""
        return self.head(hidden)

    def forward(
        self,
        src: Int[Tensor, "batch length"] | Float[Tensor, "batch channels height width"],
        mask: Bool[Tensor, "batch length"] | None = None,
        types: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch *out"]:
        """Logits for each token, or for the whole.

        Args:
            src: ids of tokens, or the values of pixels.
            mask: True on real tokens; None = all.
            types: which of two texts a token belongs to (BERT); None = the first.
        """
        return self.logits(self.encode(src, mask, types))


class DecoderOnly(nn.Module):
    """GPT-2, LLaMA and their relatives."""

    def __init__(self, embeddings: TokenFront, decoder: TextStack, head: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.decoder = decoder
        self.head = head

    def decode(
        self, tokens: Int[Tensor, "batch new"], cache: TextCache | None = None
    ) -> Float[Tensor, "batch new d_model"]:
        """Hidden states that predict the token after each; with a cache `tokens` are the new ones only."""
        if cache is None:
            return self.decoder(self.embeddings(tokens), None)
        new = tokens.size(1)
        return self.decoder(self.embeddings(tokens, cache.places(new)), cache.real(new), cache)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next token."""
        return self.head(hidden)

    def start_cache(self, padding: Int[Tensor, " rows"]) -> TextCache:
        """The empty cache for texts padded on the left by so many positions."""
        return TextCache.start(padding, len(self.decoder.layers))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Bool[Tensor, "batch length"] | None = None,
        places: Int[Tensor, "#batch length"] | None = None,
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of the token after each.

        Args:
            tokens: ids.
            mask: True on real tokens, wherever padding stands; None = all.
            places: where each token stands in its text; None = 0, 1, 2 ... whatever `mask` says, which matters only to
                learned positions and padding on the left.
        """
        return self.logits(self.decoder(self.embeddings(tokens, places), mask))


class EncoderDecoder(nn.Module):
    """T5, BART and their relatives; Whisper, which listens instead of reading."""

    def __init__(
        self,
        src_embeddings: Front,
        tgt_embeddings: TokenFront,
        encoder: Encoder,
        decoder: Decoder,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.src_embeddings = src_embeddings
        self.tgt_embeddings = tgt_embeddings
        self.encoder = encoder
        self.decoder = decoder
        self.head = head

    def encode(
        self,
        src: Int[Tensor, "batch src_len"] | Float[Tensor, "batch n_mels frames"],
        src_mask: Bool[Tensor, "batch src_len"] | None = None,
    ) -> Float[Tensor, "batch positions d_model"]:
        """The encoder's output. `src_mask` is True on real tokens; None = all."""
        return self.encoder(self.src_embeddings(src), self.src_embeddings.real(src_mask))

    def decode(
        self,
        tgt_in: Int[Tensor, "batch tgt_len"],
        memory: Float[Tensor, "batch positions d_model"],
        src_mask: Bool[Tensor, "batch src_len"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """As `Transformer.decode`."""
        places = from_zero(tgt_in) + cache.length if cache else None
        x = self.tgt_embeddings(tgt_in, places)
        return self.decoder(x, memory, self.src_embeddings.real(src_mask), cache)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next token."""
        return self.head(hidden)

    def start_cache(
        self, memory: Float[Tensor, "batch positions d_model"], src_mask: Bool[Tensor, "batch src_len"] | None = None
    ) -> DecoderCache:
        """The empty cache to decode these sources with."""
        real = self.src_embeddings.real(src_mask)
        if real is None:
            real = torch.ones_like(memory[..., 0], dtype=torch.bool)
        return DecoderCache.start(memory, real, len(self.decoder.layers))

    def forward(
        self,
        src: Int[Tensor, "batch src_len"] | Float[Tensor, "batch n_mels frames"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"] | None = None,
    ) -> Float[Tensor, "batch tgt_len vocab"]:
        """Logits of the token after each of `tgt_in`. `src_mask` is True on real tokens; None = all."""
        return self.logits(self.decode(tgt_in, self.encode(src, src_mask), src_mask))
