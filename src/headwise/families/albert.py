"""ALBERT (arXiv:1909.11942): BERT whose layers share their parameters, with narrow embeddings that are projected.

Its second pretraining task, the order of two sentences, has a head that is ignored.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headwise.config.network import NetworkConfig
from headwise.families import bert
from headwise.families.family import Family, FamilyDropout, Traits
from headwise.families.keys import WIDEST, Keys

HEADS = {
    "AlbertForMaskedLM": "masked",
    "AlbertForPreTraining": "masked",
    "AlbertModel": "none",
    "AlbertForSequenceClassification": "text_class",
    "AlbertForTokenClassification": "token_class",
    "AlbertForQuestionAnswering": "span",
}
NAMES = {
    "albert.embeddings.word_embeddings": "embeddings.tokens",
    "albert.embeddings.position_embeddings": "embeddings.positions.table",
    "albert.embeddings.token_type_embeddings": "embeddings.types",
    "albert.embeddings.LayerNorm": "embeddings.norm",
    "albert.encoder.embedding_hidden_mapping_in": "embeddings.project",
}
LAYER_NAMES = {  # of the first layer of a group
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.dense": "self_attn.o_proj",
    "attention.LayerNorm": "self_attn_sublayer.norm",
    "ffn": "ffn.up_proj",
    "ffn_output": "ffn.down_proj",
    "full_layer_layer_norm": "ffn_sublayer.norm",
}


def _more_names(config: NetworkConfig) -> dict[str, str]:
    """The names of the layers' groups and of the head."""
    assert config.encoder
    heads = {
        "masked": {
            "predictions.dense": "head.dense",
            "predictions.LayerNorm": "head.norm",
            **bert.output_names(config, "predictions.bias", "predictions.decoder"),
        },
        "text_class": {"albert.pooler": "head.pool", "classifier": "head.classes"},
        "token_class": {"classifier": "head.classes"},
        "span": {"qa_outputs": "head.classes"},
    }
    layers = {
        f"albert.encoder.albert_layer_groups.{group}.albert_layers.0.{key}": f"encoder.layers.{first}.{name}"
        for group, first in enumerate(sorted(set(config.encoder.first_of_groups)))
        for key, name in LAYER_NAMES.items()
    }
    return layers | heads.get(config.head, {})


def config_from_hf(values: Mapping[str, Any]) -> NetworkConfig:
    """The configuration from a `config.json`; `UserError` for unsupported keys."""
    k = Keys({"hidden_act": "gelu_new", **values})
    k.only("inner_group_num", 1)
    stack, head = bert.stack_from_hf(k), k.head(HEADS)
    groups, width = k.layers("num_hidden_groups", default=1), k.size("embedding_size", default=128, most=WIDEST)
    k.refuse(
        stack.n_layers % groups != 0,
        f"num_hidden_layers = {stack.n_layers} is not a multiple of num_hidden_groups = {groups}",
    )
    k.refuse(width == stack.d_model, f"embedding_size = {width} is also hidden_size, which is not supported")
    config = bert.config_of_encoder(
        "albert",
        k,
        replace(stack, d_embedding=width, layer_groups=groups),
        head,
        "tanh" if head == "text_class" else stack.activation,
    )
    k.done(ignored="classifier_dropout_prob down_scale_factor gap_size net_structure_type num_memory_blocks")
    return config


HEAD_DROPOUT = ("classifier_dropout_prob", 0.1)
DROPOUT = FamilyDropout(paper=0.0, heads={"text_class": HEAD_DROPOUT, "token_class": HEAD_DROPOUT}, whole_ffn=True)
FAMILY = Family(
    config_from_hf,
    NAMES,
    _more_names,
    prefix="albert.",
    heads=HEADS,
    ignored=r"position_ids$|^albert\.pooler\.|^sop_classifier\.|^predictions\.bias$",
    same={"predictions.decoder.bias": "predictions.bias"},
    traits=Traits("AlbertTokenizer", head_classes="Albert", dropout=DROPOUT),
)
