"""The Transformer of a recipe, as an encoder-decoder or as a pooled encoder.

Parameters need no table of names: the names in a model folder are those of the modules.
"""

from headwise.config.from_recipe import stack_config, transformer_config
from headwise.config.model import TransformerConfig
from headwise.core.build import build, build_pooled, series_front, token_front
from headwise.core.extensions.pooled import PooledEncoder
from headwise.core.transformer import Transformer


def build_model(c: TransformerConfig) -> Transformer:
    """A Transformer with random initial parameters from torch's global generator."""
    assert c.vocab_size > 0, "vocab_size is set from the tokenizer"
    network = build(transformer_config(c))
    assert isinstance(network, Transformer)
    return network


def build_pooled_transformer(c: TransformerConfig) -> PooledEncoder:
    """A pooled Transformer encoder of texts, or of time series if `n_inputs` is set, with random initial parameters."""
    encoder = stack_config(c, c.n_encoder_layers, c.encoder_heads)
    front = series_front(encoder, c.n_inputs) if c.n_inputs else token_front(encoder, c.vocab_size)
    return build_pooled(encoder, front, c.pooling, c.n_outputs)
