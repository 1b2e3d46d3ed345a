"""From a configuration to modules: the only reader of `ModelConfig`."""

from collections.abc import Callable

from torch import nn

from sightline.config import ModelConfig
from sightline.errors import unknown
from sightline.model.attention import MultiHeadAttention
from sightline.model.embeddings import Embeddings
from sightline.model.feed_forward import FeedForward
from sightline.model.layers import DecoderLayer, EncoderLayer, Sublayer
from sightline.model.positions import LearnedPositions, SinusoidalPositions
from sightline.model.stacks import Decoder, Encoder
from sightline.model.transformer import Transformer

POSITIONS: dict[str, Callable[[ModelConfig], SinusoidalPositions | LearnedPositions]] = {
    "sinusoidal": lambda c: SinusoidalPositions(c.d_model),
    "learned": lambda c: LearnedPositions(c.d_model, c.max_len),
}


def build_model(config: ModelConfig) -> Transformer:
    """The model of `config` with fresh parameters from torch's global generator."""
    if config.architecture not in ARCHITECTURES:
        raise unknown("architecture", config.architecture, ARCHITECTURES)
    assert config.vocab_size > 0, "vocab_size is known once a tokenizer is"
    return ARCHITECTURES[config.architecture](config)


def longest_sequence(config: ModelConfig) -> int | None:
    """The longest sequence the model can take, pieces; None where there is no limit."""
    return config.max_len if config.positions == "learned" else None


def _transformer(c: ModelConfig) -> Transformer:
    encoder_layers = [EncoderLayer(_attention(c), _ffn(c), lambda: _sublayer(c)) for _ in range(c.n_encoder_layers)]
    decoder_layers = [
        DecoderLayer(_attention(c), _attention(c), _ffn(c), lambda: _sublayer(c)) for _ in range(c.n_decoder_layers)
    ]
    tgt_tokens = _token_table(c)
    src_tokens = tgt_tokens if c.tied_embeddings == "all" else _token_table(c)
    model = Transformer(
        Embeddings(src_tokens, POSITIONS[c.positions](c), c.dropout),
        Embeddings(tgt_tokens, POSITIONS[c.positions](c), c.dropout),
        Encoder(encoder_layers, _final_norm(c)),
        Decoder(decoder_layers, _final_norm(c)),
        nn.Linear(c.d_model, c.vocab_size, bias=False),
    )
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    if c.tied_embeddings != "none":
        model.output.weight = tgt_tokens.weight
    return model


def _attention(c: ModelConfig) -> MultiHeadAttention:
    d_head = c.d_model // c.n_heads
    return MultiHeadAttention(c.d_model, c.n_heads, c.d_k or d_head, c.d_v or d_head)


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


ARCHITECTURES: dict[str, Callable[[ModelConfig], Transformer]] = {"transformer": _transformer}
