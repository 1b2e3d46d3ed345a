"""From axes to networks that are no translators of texts: halves of the Transformer, pictures, sound, other heads.

The stacks are those of `build.py`.
"""

from collections.abc import Callable

from torch import nn

from headwise.network.attention import MultiHeadAttention
from headwise.network.axes import NetworkConfig, StackConfig
from headwise.network.embeddings import Embeddings
from headwise.network.feed_forward import ACTIVATIONS
from headwise.network.fresh import initialize
from headwise.network.fronts import AudioFront, Front, PatchFront, SeriesEmbeddings
from headwise.network.halves import DecoderOnly, EncoderOnly
from headwise.network.layer_variants import ParallelLayer, ProjectedEncoder
from headwise.network.layers import EncoderLayer
from headwise.network.other_heads import (
    FirstStateHead,
    MaskedLanguageHead,
    ReplacedTokenHead,
    TextClassHead,
    TokenClassHead,
)
from headwise.network.parts import (
    FamilyNetwork,
    decoder,
    encoder,
    ffn,
    final_norm,
    language_head,
    norm,
    positions,
    self_attentions,
    sublayer,
    token_front,
)
from headwise.network.pooled import POOLINGS, PooledEncoder
from headwise.network.stacks import CausalStack, Encoder
from headwise.network.transformer import Transformer


def assemble(c: NetworkConfig) -> FamilyNetwork:
    """Its modules, as `build.assembled`."""
    last = c.decoder or c.encoder
    assert last is not None, "a network has an encoder, a decoder or both"
    head = HEADS[c.head](c, last)
    if c.encoder is None:
        return DecoderOnly(token_front(last, c.vocab_size), _causal_stack(last), head)
    if c.decoder is None:
        return EncoderOnly(FRONTS[c.front](c, c.encoder), encoder(c.encoder), head)
    src_front, tgt_front = FRONTS[c.front](c, c.encoder), token_front(c.decoder, c.tgt_vocab_size or c.vocab_size)
    if c.share_embeddings and isinstance(src_front, Embeddings):
        tgt_front.tokens = src_front.tokens
    return Transformer(src_front, tgt_front, _read_by(c.encoder, c.decoder), decoder(c.decoder), head)


def build_pooled(c: StackConfig, front: nn.Module, pooling: str, n_outputs: int) -> PooledEncoder:
    """An encoder with its states pooled into one vector, for classes or values to come, with fresh parameters."""
    output = nn.Linear(c.d_model, n_outputs)
    network = PooledEncoder(front, encoder(c), lambda states: states, POOLINGS[pooling], output, c.dropout)
    initialize(network)
    return network


def series_front(c: StackConfig, n_columns: int) -> SeriesEmbeddings:
    """What stands before an encoder of a series."""
    return SeriesEmbeddings(n_columns, c.d_model, positions(c, c.d_model), c.dropout)


def _read_by(c: StackConfig, reader: StackConfig) -> Encoder:
    """The encoder of a decoder that may be of another width (ViT before GPT-2)."""
    own = encoder(c)
    return own if c.d_model == reader.d_model else ProjectedEncoder(own, nn.Linear(c.d_model, reader.d_model))


def _causal_stack(c: StackConfig) -> CausalStack:
    return CausalStack([_causal_layer(c, attention) for attention in self_attentions(c)], final_norm(c))


def _causal_layer(c: StackConfig, attention: MultiHeadAttention) -> EncoderLayer | ParallelLayer:
    if c.parallel == "no":
        return EncoderLayer(attention, ffn(c), sublayer(c), sublayer(c))
    first = sublayer(c)
    return ParallelLayer(attention, ffn(c), first, first if c.parallel == "one_norm" else sublayer(c))


FRONTS: dict[str, Callable[[NetworkConfig, StackConfig], Front]] = {
    "tokens": lambda c, stack: token_front(stack, c.vocab_size),
    "patches": lambda c, stack: PatchFront(
        stack.d_model, c.n_channels, c.image_size, c.patch_size, c.n_prefix, stack.dropout
    ),
    "audio": lambda c, stack: AudioFront(stack.d_model, c.n_mels, stack.max_len, stack.dropout),
}


# --- Heads ---


def _masked(c: NetworkConfig, last: StackConfig) -> MaskedLanguageHead:
    width = last.d_embedding or last.d_model
    dense, output = nn.Linear(last.d_model, width), nn.Linear(width, c.vocab_size)
    return MaskedLanguageHead(dense, ACTIVATIONS[c.head_activation], norm(last, width), output)


def _replaced(c: NetworkConfig, last: StackConfig) -> ReplacedTokenHead:
    dense = nn.Linear(last.d_model, last.d_model)
    return ReplacedTokenHead(dense, ACTIVATIONS[c.head_activation], nn.Linear(last.d_model, 1))


def _text_class(c: NetworkConfig, last: StackConfig) -> TextClassHead:
    pool = nn.Linear(last.d_model, last.d_model)
    return TextClassHead(pool, ACTIVATIONS[c.head_activation], nn.Linear(last.d_model, c.n_classes))


def _image_class(c: NetworkConfig, last: StackConfig) -> FirstStateHead:
    return FirstStateHead([nn.Linear(last.d_model, c.n_classes) for _ in range(c.n_class_states)])


HEADS: dict[str, Callable[[NetworkConfig, StackConfig], nn.Module]] = {
    "none": lambda c, last: nn.Identity(),
    "language": language_head,
    "masked": _masked,
    "replaced": _replaced,
    "text_class": _text_class,
    "token_class": lambda c, last: TokenClassHead(nn.Linear(last.d_model, c.n_classes)),
    "span": lambda c, last: TokenClassHead(nn.Linear(last.d_model, 2)),  # where an answer begins, where it ends
    "image_class": _image_class,
}
