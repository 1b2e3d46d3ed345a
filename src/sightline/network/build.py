"""From a configuration to modules: the only reader of `ModelConfig` in this package."""

from collections.abc import Callable

from torch import nn

from sightline.config import ModelConfig
from sightline.network.attention import MultiHeadAttention
from sightline.network.embeddings import Embeddings, SeriesEmbeddings
from sightline.network.feed_forward import FeedForward
from sightline.network.heads import POOLINGS, PooledEncoder
from sightline.network.layers import DecoderLayer, EncoderLayer, Sublayer
from sightline.network.positions import LearnedPositions, SinusoidalPositions
from sightline.network.stacks import Decoder, Encoder
from sightline.network.transformer import Transformer

POSITIONS: dict[str, Callable[[ModelConfig], SinusoidalPositions | LearnedPositions]] = {
    "sinusoidal": lambda c: SinusoidalPositions(c.d_model),
    "learned": lambda c: LearnedPositions(c.d_model, c.max_len),
}


def build_model(c: ModelConfig) -> Transformer:
    """The Transformer of that configuration with fresh parameters from torch's global generator."""
    assert c.vocab_size > 0, "vocab_size is known once a tokenizer is"
    heads = zip(
        _heads(c, c.decoder_heads, c.n_decoder_layers), _heads(c, c.cross_heads, c.n_decoder_layers), strict=True
    )
    decoder_layers = [
        DecoderLayer(_attention(c, own), _attention(c, cross), _ffn(c), lambda: _sublayer(c)) for own, cross in heads
    ]
    tgt_tokens = _token_table(c)
    src_tokens = tgt_tokens if c.tied_embeddings == "all" else _token_table(c)
    model = Transformer(
        Embeddings(src_tokens, POSITIONS[c.positions](c), c.dropout),
        Embeddings(tgt_tokens, POSITIONS[c.positions](c), c.dropout),
        _encoder(c),
        Decoder(decoder_layers, _final_norm(c)),
        nn.Linear(c.d_model, c.vocab_size, bias=False),
    )
    _initialize(model, _residual_gains(model.encoder) | _residual_gains(model.decoder))
    if c.tied_embeddings != "none":
        model.output.weight = tgt_tokens.weight
    return model


def build_pooled_transformer(c: ModelConfig) -> PooledEncoder:
    """The Transformer's encoder, pooled, with fresh parameters; of texts, or of a series where `n_inputs` says so."""
    positions = POSITIONS[c.positions](c)
    embeddings = (
        SeriesEmbeddings(c.n_inputs, c.d_model, positions, c.dropout)
        if c.n_inputs
        else Embeddings(_token_table(c), positions, c.dropout)
    )
    encoder, output = _encoder(c), nn.Linear(c.d_model, c.n_outputs)
    model = PooledEncoder(embeddings, encoder, lambda states: states, POOLINGS[c.pooling], output, c.dropout)
    _initialize(model, _residual_gains(encoder))
    return model


def _encoder(c: ModelConfig) -> Encoder:
    heads = _heads(c, c.encoder_heads, c.n_encoder_layers)
    layers = [EncoderLayer(_attention(c, own), _ffn(c), lambda: _sublayer(c)) for own in heads]
    return Encoder(layers, _final_norm(c))


def _initialize(model: nn.Module, gains: dict[nn.Module, float]) -> None:
    """Xavier's uniform and biases of zero; what sub-layers add to the residual stream is drawn smaller.

    By (2N)^-1/2 for a stack of N layers, as GPT-2 does (section 2.3 of its report); the paper says nothing of it.
    Otherwise a post-norm model of several layers learns to use its source only after thousands of updates
    (benchmarks/results, quality).
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=gains.get(module, 1.0))
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _residual_gains(stack: Encoder | Decoder) -> dict[nn.Module, float]:
    """The last projection of each sub-layer, and by how much it starts smaller."""
    attentions = [module.o_proj for module in stack.modules() if isinstance(module, MultiHeadAttention)]
    networks = [module.down_proj for module in stack.modules() if isinstance(module, FeedForward)]
    return dict.fromkeys([*attentions, *networks], (2 * len(stack.layers)) ** -0.5)


def _heads(c: ModelConfig, left: tuple[int, ...], n_layers: int) -> tuple[int, ...]:
    """The heads of each layer: those that pruning has left, or all."""
    return left or (c.n_heads,) * n_layers


def _attention(c: ModelConfig, n_heads: int) -> MultiHeadAttention:
    d_head = c.d_model // c.n_heads  # a head stays as wide when others go
    return MultiHeadAttention(c.d_model, n_heads, c.d_k or d_head, c.d_v or d_head)


def _ffn(c: ModelConfig) -> FeedForward:
    return FeedForward(c.d_model, c.d_ff)


def _sublayer(c: ModelConfig) -> Sublayer:
    return Sublayer(c.d_model, c.dropout, norm_first=c.norm_position == "pre")


def _final_norm(c: ModelConfig) -> nn.Module | None:
    return nn.LayerNorm(c.d_model) if c.norm_position == "pre" else None


def _token_table(c: ModelConfig) -> nn.Embedding:
    """Standard deviation d_model^-1/2: after the scale of section 3.4 a component has variance 1."""
    table = nn.Embedding(c.vocab_size, c.d_model)
    nn.init.normal_(table.weight, std=c.d_model**-0.5)
    return table
