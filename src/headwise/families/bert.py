"""BERT (arXiv:1810.04805): a bidirectional encoder, trained to predict masked tokens.

Changes to the Transformer: learned positions, segments, a norm after the sum of embeddings, GELU.
"""

from collections.abc import Mapping
from typing import Any

from headwise.config.network import NetworkConfig, StackConfig
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import ACTIVATIONS_TO_HF, Keys

HEADS = {
    "BertForMaskedLM": "masked",
    "BertForPreTraining": "masked",
    "BertModel": "none",
    "BertForSequenceClassification": "text_class",
    "BertForTokenClassification": "token_class",
    "BertForQuestionAnswering": "span",
}
LAYERS = {  # shared by RoBERTa and ELECTRA, with their prefix
    "encoder.layer.{i}.attention.self.query": "encoder.layers.{i}.self_attn.q_proj",
    "encoder.layer.{i}.attention.self.key": "encoder.layers.{i}.self_attn.k_proj",
    "encoder.layer.{i}.attention.self.value": "encoder.layers.{i}.self_attn.v_proj",
    "encoder.layer.{i}.attention.output.dense": "encoder.layers.{i}.self_attn.o_proj",
    "encoder.layer.{i}.attention.output.LayerNorm": "encoder.layers.{i}.self_attn_sublayer.norm",
    "encoder.layer.{i}.intermediate.dense": "encoder.layers.{i}.ffn.up_proj",
    "encoder.layer.{i}.output.dense": "encoder.layers.{i}.ffn.down_proj",
    "encoder.layer.{i}.output.LayerNorm": "encoder.layers.{i}.ffn_sublayer.norm",
    "embeddings.word_embeddings": "embeddings.tokens",
    "embeddings.token_type_embeddings": "embeddings.types",
    "embeddings.LayerNorm": "embeddings.norm",
}
NAMES = {f"bert.{key}": name for key, name in LAYERS.items()} | {
    "bert.embeddings.position_embeddings": "embeddings.positions.table",
}


def head_names(config: NetworkConfig) -> dict[str, str]:
    """The names of the network's head."""
    heads = {
        "masked": {
            "cls.predictions.transform.dense": "head.dense",
            "cls.predictions.transform.LayerNorm": "head.norm",
            **output_names(config, "cls.predictions.bias", "cls.predictions.decoder"),
        },
        "text_class": {"bert.pooler.dense": "head.pool", "classifier": "head.classes"},
        "token_class": {"classifier": "head.classes"},
        "span": {"qa_outputs": "head.classes"},
    }
    return heads.get(config.head, {})


def output_names(config: NetworkConfig, bias: str, output: str) -> dict[str, str]:
    """Names of the output projection; only the bias if the matrix is tied."""
    return {bias: "head.output.bias"} if config.tie_head else {output: "head.output"}


def stack_from_hf(k: Keys) -> StackConfig:
    """The encoder of BERT, RoBERTa and ELECTRA."""
    k.only("is_decoder", False)
    k.only("add_cross_attention", False)
    k.only("position_embedding_type", "absolute")
    d_model, n_heads, d_head = k.heads("hidden_size", "num_attention_heads")
    return StackConfig(
        d_model=d_model,
        n_layers=k.layers("num_hidden_layers"),
        n_heads=n_heads,
        d_ff=k.size("intermediate_size"),
        d_head=d_head,
        activation=k.activation("hidden_act", "gelu"),
        norm_eps=k.fraction("layer_norm_eps", default=1e-12),
        norm_position="post",
        positions="learned",
        max_len=k.size("max_position_embeddings", default=512),
        embedding_norm=True,
        n_types=k.size("type_vocab_size", default=2),
    )


def config_of_encoder(family: str, k: Keys, stack: StackConfig, head: str, activation: str) -> NetworkConfig:
    """The configuration of an encoder; `activation` is that of the head."""
    return NetworkConfig(
        family,
        vocab_size=k.size("vocab_size"),
        encoder=stack,
        head=head,
        head_activation=activation,
        n_classes=k.n_classes() if head.endswith("_class") else 0,
        tie_head=k.flag("tie_word_embeddings", default=True) and head == "masked",
    )


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys(values)
    stack, head = stack_from_hf(k), k.head(HEADS)
    config = config_of_encoder("bert", k, stack, head, "tanh" if head == "text_class" else stack.activation)
    k.done()
    return config


def config_to_hf(config: NetworkConfig) -> dict[str, Any]:
    """The `config.json` of a network, without token ids."""
    return network_to_hf(config, HEADS)


def network_to_hf(config: NetworkConfig, heads: Mapping[str, str]) -> dict[str, Any]:
    """The `config.json` of BERT and ELECTRA, without attention dropout."""
    stack = config.encoder
    assert stack
    return {
        "model_type": config.family,
        "architectures": [name for name, head in heads.items() if head == config.head][:1],
        "vocab_size": config.vocab_size,
        "hidden_size": stack.d_model,
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": stack.n_heads,
        "intermediate_size": stack.d_ff,
        "hidden_act": ACTIVATIONS_TO_HF.get(stack.activation, stack.activation),
        "max_position_embeddings": stack.max_len,
        "type_vocab_size": stack.n_types,
        "layer_norm_eps": stack.norm_eps,
        "tie_word_embeddings": config.tie_head,
        "hidden_dropout_prob": stack.dropout,
        "attention_probs_dropout_prob": 0.0,
    }


ATTENTION_DROPOUT = {"attention_probs_dropout_prob": 0.1}
DROPOUT = FamilyDropout(more=ATTENTION_DROPOUT)
FAMILY = Family(
    config_from_hf,
    NAMES,
    head_names,
    prefix="bert.",
    heads=HEADS,
    ignored=r"position_ids$|^bert\.pooler\.|^cls\.seq_relationship\.|^cls\.predictions\.bias$",
    same={"cls.predictions.decoder.bias": "cls.predictions.bias"},
    config_to_hf=config_to_hf,
    traits=Traits("BertTokenizer", head_classes="Bert", dropout=DROPOUT),
)
