"""The Transformer (figure 1): encoder, decoder, output projection, behind the contract every architecture keeps."""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.network.cache import DecoderCache
from sightline.network.embeddings import Embeddings
from sightline.network.packing import Packing, can_pack, starts
from sightline.network.stacks import Decoder, Encoder


class Transformer(nn.Module):
    """Encoder-decoder. Trainer, search and inspector use `encode`, `decode`, `logits` and `start_cache` only.

    Build one with `sightline.network.build.build_model`.
    """

    def __init__(
        self,
        src_embeddings: Embeddings,
        tgt_embeddings: Embeddings,
        encoder: Encoder,
        decoder: Decoder,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.src_embeddings = src_embeddings
        self.tgt_embeddings = tgt_embeddings
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def encode(
        self, src: Int[Tensor, "batch src_len"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> Float[Tensor, "batch src_len d_model"]:
        """The encoder's output, called memory from here on. `src_mask` is True on real tokens."""
        return self.encoder(self.src_embeddings(src), src_mask)

    def decode(
        self,
        tgt_in: Int[Tensor, "batch tgt_len"],
        memory: Float[Tensor, "batch src_len d_model"],
        src_mask: Bool[Tensor, "batch src_len"],
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states that predict the piece after each of `tgt_in`.

        Padding in `tgt_in` needs no mask: it stands right of everything real, where causality hides it.
        With a cache `tgt_in` holds the new positions only, and the cache is advanced by them.
        """
        start = cache.length if cache else 0
        return self.decoder(self.tgt_embeddings(tgt_in, start), memory, src_mask, cache)

    def logits(self, hidden: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """Unnormalised scores of the next piece (the softmax belongs to loss and search)."""
        return self.output(hidden)

    def start_cache(
        self, memory: Float[Tensor, "batch src_len d_model"], src_mask: Bool[Tensor, "batch src_len"]
    ) -> DecoderCache:
        """The empty cache to decode these sources with."""
        return DecoderCache.start(memory, src_mask, len(self.decoder.layers))

    def forward(
        self,
        src: Int[Tensor, "batch src_len"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"],
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Hidden states of a teacher-forced pass; `logits` of them are the predictions."""
        return self.decode(tgt_in, self.encode(src, src_mask), src_mask)

    def without_padding(
        self,
        src: Int[Tensor, "batch src_len"],
        tgt_in: Int[Tensor, "batch tgt_len"],
        src_mask: Bool[Tensor, "batch src_len"],
        tgt_mask: Bool[Tensor, "batch tgt_len"],
    ) -> Float[Tensor, "rows d_model"]:
        """What `forward` gives at the positions that `tgt_mask` is True for, one below the other.

        Where sentences can be packed (`packing`), nothing is computed for the others.
        """
        if not self._can_pack(src_mask, tgt_mask):
            hidden = self(src, tgt_in, src_mask).flatten(0, 1)
            return hidden.index_select(0, tgt_mask.flatten().nonzero().squeeze(1))
        sources, targets = starts(src_mask), starts(tgt_mask)
        memory = self.encoder.attend_to(
            self.src_embeddings.packed(src, src_mask), Packing(sources, sources, causal=False)
        )
        own, cross = Packing(targets, targets, causal=True), Packing(targets, sources, causal=False)
        return self.decoder.attend_to(self.tgt_embeddings.packed(tgt_in, tgt_mask), memory, own, cross)[0]

    def _can_pack(self, *masks: Bool[Tensor, "batch _"]) -> bool:
        attention: Any = self.decoder.layers[0].cross_attn
        widths = (x.out_features // attention.n_heads for x in (attention.q_proj, attention.v_proj))
        return can_pack(attention.q_proj.weight, tuple(widths), *masks)
