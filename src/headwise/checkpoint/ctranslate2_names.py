"""Names of tensors and activations in models of CTranslate2, for reading (`ctranslate2_folder`) and export."""

from headwise.network.config import NetworkConfig, StackConfig

LINEAR = {  # of a layer: CTranslate2's name, and ours to concatenate
    "self_attention.linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.linear_1": ("self_attn.o_proj",),
    "self_attention.layer_norm": ("self_attn_sublayer.norm",),
    "attention.linear_0": ("cross_attn.q_proj",),
    "attention.linear_1": ("cross_attn.k_proj", "cross_attn.v_proj"),
    "attention.linear_2": ("cross_attn.o_proj",),
    "attention.layer_norm": ("cross_attn_sublayer.norm",),
    "ffn.linear_1": ("ffn.down_proj",),
    "ffn.layer_norm": ("ffn_sublayer.norm",),
}
PLAIN = {"ffn.linear_0": ("ffn.up_proj",)}
GATED = {"ffn.linear_0": ("ffn.gate_proj",), "ffn.linear_0_noact": ("ffn.up_proj",)}
NAMES = {  # in the notation of `families.table`; positions are computed
    "encoder.embeddings_0": "src_embeddings.tokens",
    "decoder.embeddings": "tgt_embeddings.tokens",
    "encoder.layernorm_embedding": "src_embeddings.norm",
    "decoder.layernorm_embedding": "tgt_embeddings.norm",
    "encoder.layer_norm": "encoder.norm",  # where layers normalise first
    "decoder.layer_norm": "decoder.norm",
    "decoder.projection": "head.output",
}
NORM = {"weight": "gamma", "bias": "beta"}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "quick_gelu": "GELUSigmoid", "silu": "SWISH"}
EPS = {"layer": 1e-5, "rms": 1e-6}  # default epsilon of its norms


def stacks_of(config: NetworkConfig) -> dict[str, StackConfig]:
    """Encoder and decoder by name."""
    assert config.encoder and config.decoder
    return {"encoder": config.encoder, "decoder": config.decoder}


def ctranslate2_names(config: NetworkConfig) -> dict[str, str]:
    """Tensor names of CTranslate2 and ours, for this network."""
    layers = {
        f"{side}.layer_{{i}}.{theirs}": "|".join(f"{side}.layers.{{i}}.{name}" for name in ours)
        for side, stack in stacks_of(config).items()
        for theirs, ours in (LINEAR | (GATED if stack.gated else PLAIN)).items()
    }
    return {**NAMES, **layers}
