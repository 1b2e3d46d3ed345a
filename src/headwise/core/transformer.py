"""The Transformer (figure 1): encoder, decoder, output projection; and its halves (BERT and ViT, GPT and LLaMA)."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.core.cache import DecoderCache, TextCache
from headwise.core.embeddings import Embeddings
from headwise.core.extensions.fronts import Front
from headwise.core.heads import TextClassHead
from headwise.core.layers import CausalStack, Decoder, Encoder
from headwise.core.masks import Packing
from headwise.core.positions import PositionIds


class Transformer(nn.Module):
    """Encoder-decoder: the paper's, T5, BART, Whisper, image captioning.

    Trainer, search and inspector use only `encode`, `decode`, `logits` and `start_cache`. Build one with
    `headwise.core.build`.
    """

    def __init__(
        self, src_embeddings: Any, tgt_embeddings: Embeddings, encoder: Encoder, decoder: Decoder, head: nn.Module
    ) -> None:
        super().__init__()
        self.src_embeddings = src_embeddings
        self.tgt_embeddings = tgt_embeddings
        self.encoder = encoder
        self.decoder = decoder
        self.head = head

    @property
    def output(self) -> nn.Linear:
        """The projection to the vocabulary."""
        return self.head.get_submodule("output")  # pyright: ignore[reportReturnType] a LanguageHead

    def encode(
        self,
        src: Int[Tensor, "batch src_len"] | Float[Tensor, "batch *sound_or_picture"],
        src_mask: Bool[Tensor, "batch src_len"] | Packing | None = None,
    ) -> Float[Tensor, "batch positions d_model"]:
        """The encoder's output, called memory from here on. `src_mask` is True on real tokens; None = all."""
        start = src_mask if isinstance(src_mask, Packing) else 0
        return self.encoder(self.src_embeddings(src, start), self.src_embeddings.real(src_mask))

    def decode(
        self,
        tgt_in: Int[Tensor, "batch tgt_len"],
        memory: Float[Tensor, "batch positions d_memory"],
        src_mask: Bool[Tensor, "batch src_len"] | Packing | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states that predict the token after each of `tgt_in`.

        Padding in `tgt_in` needs no mask: it comes after all real tokens, which do not attend to later positions.
        With a cache `tgt_in` holds the new positions only, and the cache is advanced by them.
        """
        start = src_mask if isinstance(src_mask, Packing) else cache.start_position if cache else 0
        return self.decoder(self.tgt_embeddings(tgt_in, start), memory, self.src_embeddings.real(src_mask), cache)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next token (loss and search apply the softmax)."""
        return self.head(hidden)

    def start_cache(
        self, memory: Float[Tensor, "batch positions d_memory"], src_mask: Bool[Tensor, "batch src_len"] | None = None
    ) -> DecoderCache:
        """The empty cache to decode these sources with."""
        real = self.src_embeddings.real(src_mask)
        if real is None:
            real = torch.ones_like(memory[..., 0], dtype=torch.bool)
        return DecoderCache.start(memory, real, len(self.decoder.layers))

    def states(
        self,
        src: Int[Tensor, "batch src_len"] | Float[Tensor, "batch *sound_or_picture"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"] | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states with teacher forcing."""
        return self.decode(tgt_in, self.encode(src, src_mask), src_mask)

    def forward(
        self,
        src: Int[Tensor, "batch src_len"] | Float[Tensor, "batch *sound_or_picture"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"] | None = None,
    ) -> Float[Tensor, "batch tgt_len vocab"]:
        """Logits of the token after each of `tgt_in`."""
        return self.logits(self.states(src, tgt_in, src_mask))


class EncoderOnly(nn.Module):
    """Encoder alone: BERT and its variants; ViT, whose tokens are patches."""

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
        """The last hidden states; arguments as in `forward`."""
        x = self.embeddings(src) if types is None else self.embeddings(src, types=types)
        return self.encoder(x, self.embeddings.real(mask))

    def logits(
        self, hidden: Float[Tensor, "batch positions d_model"], mask: Bool[Tensor, "batch length"] | None = None
    ) -> Float[Tensor, "batch *out"]:
        """The head's output; the hidden states themselves if the checkpoint has no head.

        `mask` is True on real tokens; None = all. Only a head that pools all states needs it.
        """
        return self.head(hidden, mask) if isinstance(self.head, TextClassHead) else self.head(hidden)

    def forward(
        self,
        src: Int[Tensor, "batch length"] | Float[Tensor, "batch channels height width"],
        mask: Bool[Tensor, "batch length"] | None = None,
        types: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch *out"]:
        """Logits for each token, or for the whole input.

        Args:
            src: token ids, or pixels.
            mask: True on real tokens; None = all.
            types: token type ids (BERT's segments); None = 0.
        """
        return self.logits(self.encode(src, mask, types), mask)


class DecoderOnly(nn.Module):
    """Decoder alone: GPT-2, LLaMA and their variants. It has `decode`, `logits` and `start_cache`."""

    def __init__(self, embeddings: Embeddings, decoder: CausalStack, head: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.decoder = decoder
        self.head = head

    @property
    def output(self) -> nn.Linear:
        """The projection to the vocabulary."""
        return self.head.get_submodule("output")  # pyright: ignore[reportReturnType] a LanguageHead

    def decode(
        self, tokens: Int[Tensor, "batch new"], cache: TextCache | None = None
    ) -> Float[Tensor, "batch new d_model"]:
        """Hidden states that predict the next token; with a cache, `tokens` holds the new ones only."""
        if cache is None:
            return self.decoder(self.embeddings(tokens), None)
        if cache.position:
            return self.decoder(self.embeddings(tokens, cache.position), None, cache)
        new = tokens.size(1)
        return self.decoder(self.embeddings(tokens, cache.position_ids(new)), cache.real(new), cache)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next token."""
        return self.head(hidden)

    def start_cache(self, padding: Int[Tensor, " rows"]) -> TextCache:
        """The empty cache for texts with this much left padding."""
        return TextCache.start(padding, len(self.decoder.layers))

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        mask: Bool[Tensor, "batch length"] | None = None,
        position_ids: int | PositionIds = 0,
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of the next token after each token.

        Args:
            tokens: token ids.
            mask: True on real tokens; None = all.
            position_ids: position of each token, or of the first one. Needed only for learned positions with left
                padding.
        """
        return self.logits(self.decoder(self.embeddings(tokens, position_ids), mask))
