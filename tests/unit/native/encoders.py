"""Small encoders with random parameters: a torch module and its arrays, for the compiled library."""

from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray

from headwise.config.network import NetworkConfig, RotaryConfig, StackConfig
from headwise.core.build import build
from headwise.core.transformer import EncoderOnly
from headwise.runtime.checkpoint.compiled_encoder import compiled_encoder
from headwise.runtime.native.encoder import CompiledEncoder

VOCAB = 50
BERT = StackConfig(
    d_model=36, n_layers=3, n_heads=3, d_ff=50, d_head=12, norm_position="post", norm_eps=1e-12, positions="learned",
    max_len=64, embedding_norm=True, n_types=2,
)  # fmt: skip
ROBERTA = replace(BERT, n_types=1, position_offset=2, count_from=1)
CONFIGS = {
    "BERT": NetworkConfig("bert", VOCAB, BERT, head="masked"),
    "BERT, pairs": NetworkConfig("bert", VOCAB, BERT, head="text_class", head_activation="tanh", n_classes=3),
    "BERT, answers": NetworkConfig("bert", VOCAB, BERT, head="span"),
    "RoBERTa": NetworkConfig("roberta", VOCAB, ROBERTA, head="masked", tie_head=False),
    "DistilBERT": NetworkConfig(
        "distilbert", VOCAB, replace(BERT, n_types=0), head="text_class", head_activation="relu", n_classes=1
    ),
    "ELECTRA": NetworkConfig("electra", VOCAB, replace(BERT, d_embedding=20), head="replaced"),
    "ALBERT": NetworkConfig("albert", VOCAB, replace(BERT, d_embedding=20, layer_groups=1), head="masked"),
    "MPNet": NetworkConfig("mpnet", VOCAB, replace(ROBERTA, n_types=0, relative_buckets=32), head="masked"),
    "pre-norm": NetworkConfig(
        "none", VOCAB, replace(BERT, norm_position="pre", positions="none", rotary=RotaryConfig(12)),
        head="token_class", head_norm=True, n_classes=5,
    ),
    "pruned": NetworkConfig("bert", VOCAB, replace(BERT, heads=(3, 1, 2)), head="token_class", n_classes=5),
    "no head": NetworkConfig("bert", VOCAB, replace(BERT, norm="rms", gated=True, activation="silu"), head="none"),
}  # fmt: skip
CONFIGS = {name: replace(one, tie_head=one.tie_head and one.head == "masked") for name, one in CONFIGS.items()}


def random_encoder(config: NetworkConfig) -> EncoderOnly:
    """The torch module."""
    network = build(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += torch.randn_like(parameter) / parameter.size(-1) ** 0.5
    return network


def arrays_of(network: torch.nn.Module) -> dict[str, NDArray[Any]]:
    """Its parameters in float32."""
    return {name: parameter.detach().numpy() for name, parameter in network.named_parameters()}


def small_encoder(compute: str) -> CompiledEncoder:
    """A BERT with 30 tokens and 8 positions."""
    config = NetworkConfig("bert", 30, replace(BERT, n_layers=1, max_len=8), head="none", tie_head=False)
    return compiled_encoder(config, arrays_of(random_encoder(config)), compute)
