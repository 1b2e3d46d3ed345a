"""One half of the Transformer: an encoder alone (BERT, ViT), a decoder alone (GPT, LLaMA).

The whole is in `transformer.py`. A decoder alone keeps as much of the contract as it has: `decode`, `logits` and
`start_cache`.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.network.cache import TextCache
from headwise.network.embeddings import Embeddings
from headwise.network.fronts import Front
from headwise.network.positions import PositionIds
from headwise.network.stacks import CausalStack, Encoder


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

    def __init__(self, embeddings: Embeddings, decoder: CausalStack, head: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.decoder = decoder
        self.head = head

    @property
    def output(self) -> nn.Linear:
        """The projection to the vocabulary."""
        return self.head.get_submodule("output")  # pyright: ignore[reportReturnType] of a head for language

    def decode(
        self, tokens: Int[Tensor, "batch new"], cache: TextCache | None = None
    ) -> Float[Tensor, "batch new d_model"]:
        """Hidden states that predict the token after each; with a cache `tokens` are the new ones only."""
        if cache is None:
            return self.decoder(self.embeddings(tokens), None)
        new = tokens.size(1)
        return self.decoder(self.embeddings(tokens, cache.position_ids(new)), cache.real(new), cache)

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
        position_ids: int | PositionIds = 0,
    ) -> Float[Tensor, "batch length vocab"]:
        """Logits of the token after each.

        Args:
            tokens: ids.
            mask: True on real tokens, wherever padding stands; None = all.
            position_ids: where each token stands in its text, or the first of each row; whatever `mask` says, it
                matters only to learned positions and padding on the left.
        """
        return self.logits(self.decoder(self.embeddings(tokens, position_ids), mask))
