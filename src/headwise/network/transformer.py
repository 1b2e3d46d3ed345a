"""The Transformer (figure 1): encoder, decoder, output projection, behind the contract every architecture keeps."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.network.cache import DecoderCache
from headwise.network.embeddings import Embeddings
from headwise.network.masks import Packing
from headwise.network.stacks import Decoder, Encoder


class Transformer(nn.Module):
    """Encoder-decoder: the paper's, T5, BART and their relatives; Whisper, which listens, and captions, which look.

    Trainer, search and inspector use `encode`, `decode`, `logits` and `start_cache` only. Half of it alone is in
    `halves.py`. Build one with `headwise.network.build`.
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
        return self.head.get_submodule("output")  # pyright: ignore[reportReturnType] of a head for language

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
        memory: Float[Tensor, "batch positions d_model"],
        src_mask: Bool[Tensor, "batch src_len"] | Packing | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states that predict the token after each of `tgt_in`.

        Padding in `tgt_in` needs no mask: it comes after all real tokens, which do not attend to later positions.
        With a cache `tgt_in` holds the new positions only, and the cache is advanced by them.
        """
        start = src_mask if isinstance(src_mask, Packing) else cache.length if cache else 0
        return self.decoder(self.tgt_embeddings(tgt_in, start), memory, self.src_embeddings.real(src_mask), cache)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next piece (the softmax belongs to loss and search)."""
        return self.head(hidden)

    def start_cache(
        self, memory: Float[Tensor, "batch positions d_model"], src_mask: Bool[Tensor, "batch src_len"] | None = None
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
        """Hidden states of a teacher-forced pass."""
        return self.decode(tgt_in, self.encode(src, src_mask), src_mask)

    def forward(
        self,
        src: Int[Tensor, "batch src_len"] | Float[Tensor, "batch *sound_or_picture"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"] | None = None,
    ) -> Float[Tensor, "batch tgt_len vocab"]:
        """Logits of the piece after each of `tgt_in`."""
        return self.logits(self.states(src, tgt_in, src_mask))
